"""The tools of tau-bench's airline: what they check, change and answer is its own, mistakes included.

Flights keep their seats when some are sold, and a new cabin is paid but not written.
"""

from __future__ import annotations

from typing import Any

from agent_envs.envs.helpdesk.released_tables import Shop
from agent_envs.errors import ToolError

_NOW = "2024-05-15T15:00:00"
_NEW_RESERVATIONS = ("HATHAT", "HATHAU", "HATHAV")
_NEW_CERTIFICATES = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
_INSURANCE, _BAG = 30, 50  # dollars, for a passenger and for a bag
_AIRPORTS = (
    "SFO San Francisco/JFK New York/LAX Los Angeles/ORD Chicago/DFW Dallas/DEN Denver/SEA Seattle/ATL Atlanta/"
    "MIA Miami/BOS Boston/PHX Phoenix/IAH Houston/LAS Las Vegas/MCO Orlando/EWR Newark/CLT Charlotte/"
    "MSP Minneapolis/DTW Detroit/PHL Philadelphia/LGA LaGuardia"
)


def _shown(flight: dict[str, Any], day: str) -> dict[str, Any]:
    return {name: value for name, value in flight.items() if name != "dates"} | flight["dates"][day]


def _flies(flight: dict[str, Any], day: str) -> bool:
    return day in flight["dates"] and flight["dates"][day]["status"] == "available"


class Airline(Shop):
    """The airline's tables and tools."""

    def _seats(self, flight: dict[str, Any], cabin: str, people: int) -> dict[str, Any]:
        """Return what a flight on a day adds to a reservation, if it has seats."""
        number, day = flight["flight_number"], flight["date"]
        known = self.rows("flights").get(number)
        if known is None:
            raise ToolError(f"flight {number} not found")
        if day not in known["dates"]:
            raise ToolError(f"flight {number} not found on date {day}")
        on_day = known["dates"][day]
        if on_day["status"] != "available":
            raise ToolError(f"flight {number} not available on date {day}")
        if on_day["available_seats"][cabin] < people:
            raise ToolError(f"not enough seats on flight {number}")
        return {"price": on_day["prices"][cabin], "origin": known["origin"], "destination": known["destination"]}

    def _charge(self, reservation: dict[str, Any], payment: str, price: int) -> None:
        """Take the price of a change from a gift card; a negative one is given back."""
        method = self.row("users", reservation["user_id"])["payment_methods"].get(payment)
        if method is None:
            raise ToolError("payment method not found")
        if method["source"] == "certificate":
            raise ToolError("certificate cannot be used to update reservation")
        if method["source"] == "gift_card":
            if method["amount"] < price:
                raise ToolError("gift card balance is not enough")
            method["amount"] -= price
        if price != 0:
            reservation["payment_history"].append({"payment_id": payment, "amount": price})

    def book_reservation(self, *, user_id: str, **asked: Any) -> Any:
        """Book flights, if there are seats and the payments are right to the dollar."""
        user = self.row("users", user_id)
        taken, people = self.rows("reservations"), len(asked["passengers"])
        number = next((new for new in _NEW_RESERVATIONS if new not in taken), _NEW_RESERVATIONS[-1])
        flights = asked["flights"]
        for flight in flights:
            flight |= self._seats(flight, asked["cabin"], people)
        price = sum(flight["price"] for flight in flights) * people + _BAG * asked["nonfree_baggages"]
        price += _INSURANCE * people if asked["insurance"] == "yes" else 0
        methods, payments = user["payment_methods"], asked["payment_methods"]
        for payment in payments:
            if (method := methods.get(payment["payment_id"])) is None:
                raise ToolError(f"payment method {payment['payment_id']} not found")
            if method["source"] in ("gift_card", "certificate") and method["amount"] < payment["amount"]:
                raise ToolError(f"not enough balance in payment method {payment['payment_id']}")
        if (paid := sum(payment["amount"] for payment in payments)) != price:
            raise ToolError(f"payment amount does not add up, total price is {price}, but paid {paid}")
        for payment in payments:
            if methods[payment["payment_id"]]["source"] == "gift_card":
                methods[payment["payment_id"]]["amount"] -= payment["amount"]
            elif methods[payment["payment_id"]]["source"] == "certificate":
                del methods[payment["payment_id"]]
        trip = {name: asked[name] for name in ("origin", "destination", "flight_type", "cabin")}
        extras = {name: asked[name] for name in ("total_baggages", "nonfree_baggages", "insurance")}
        reservation = {"reservation_id": number, "user_id": user_id, **trip, "flights": flights}
        reservation |= {"passengers": asked["passengers"], "payment_history": payments, "created_at": _NOW, **extras}
        self.used["reservations"] = self.used.get("reservations", {}) | {number: reservation}
        user["reservations"].append(number)
        return reservation

    def cancel_reservation(self, *, reservation_id: str) -> Any:
        """Give all payments back."""
        reservation = self.row("reservations", reservation_id)
        history = reservation["payment_history"]
        history += [{"payment_id": paid["payment_id"], "amount": -paid["amount"]} for paid in history]
        reservation["status"] = "cancelled"
        return reservation

    def get_reservation_details(self, *, reservation_id: str) -> Any:
        """Return a reservation."""
        return self.row("reservations", reservation_id)

    def list_all_airports(self) -> Any:
        """Return the cities of all airports."""
        return dict(airport.split(" ", 1) for airport in _AIRPORTS.split("/"))

    def search_direct_flight(self, *, origin: str, destination: str, date: str) -> Any:
        """Return the flights that can be booked."""
        flights = self.rows("flights").values()
        way = [flight for flight in flights if (flight["origin"], flight["destination"]) == (origin, destination)]
        return [_shown(flight, date) for flight in way if _flies(flight, date)]

    def search_onestop_flight(self, *, origin: str, destination: str, date: str) -> Any:
        """Return pairs of flights; the second one is shown as it is on the day of the first."""
        flights = self.rows("flights").values()
        seconds = [flight for flight in flights if flight["destination"] == destination]
        pairs = []
        for first in (flight for flight in flights if flight["origin"] == origin):
            arrival = first["scheduled_arrival_time_est"]
            for second in (flight for flight in seconds if flight["origin"] == first["destination"]):
                day = f"2024-05-{int(date[-2:]) + 1}" if "+1" in arrival else date
                in_time = arrival <= second["scheduled_departure_time_est"]
                if in_time and _flies(first, date) and _flies(second, day):
                    pairs.append([_shown(first, date) | {"date": date}, _shown(second, date) | {"date": day}])
        return pairs

    def send_certificate(self, *, user_id: str, amount: float) -> str:
        """Give a customer a certificate, up to three times."""
        methods = self.row("users", user_id)["payment_methods"]
        for new in _NEW_CERTIFICATES:
            if new not in methods:
                methods[new] = {"source": "certificate", "amount": amount, "id": new}
                return f"Certificate {new} added to user {user_id} with amount {amount}."
        return "None"

    def update_reservation_baggages(
        self, *, reservation_id: str, total_baggages: int, nonfree_baggages: int, payment_id: str
    ) -> Any:
        """Change the number of bags."""
        reservation = self.row("reservations", reservation_id)
        self._charge(reservation, payment_id, _BAG * max(0, nonfree_baggages - reservation["nonfree_baggages"]))
        reservation |= {"total_baggages": total_baggages, "nonfree_baggages": nonfree_baggages}
        return reservation

    def update_reservation_flights(
        self, *, reservation_id: str, cabin: str, flights: list[dict[str, Any]], payment_id: str
    ) -> Any:
        """Change the flights; those that stay in the same cabin keep their price."""
        reservation = self.row("reservations", reservation_id)
        people = len(reservation["passengers"])
        booked = {(flight["flight_number"], flight["date"]): flight for flight in reversed(reservation["flights"])}
        for flight in flights:
            old = booked.get((flight["flight_number"], flight["date"])) if cabin == reservation["cabin"] else None
            same = old and {name: old[name] for name in ("price", "origin", "destination")}
            flight |= same or self._seats(flight, cabin, people)
        before = sum(flight["price"] for flight in reservation["flights"])
        self._charge(reservation, payment_id, (sum(flight["price"] for flight in flights) - before) * people)
        reservation["flights"] = flights
        return reservation

    def update_reservation_passengers(self, *, reservation_id: str, passengers: list[dict[str, Any]]) -> Any:
        """Change who flies."""
        reservation = self.row("reservations", reservation_id)
        if len(passengers) != len(reservation["passengers"]):
            raise ToolError("number of passengers does not match")
        reservation["passengers"] = passengers
        return reservation
