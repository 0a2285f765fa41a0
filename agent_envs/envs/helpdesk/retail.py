"""The tools of tau-bench's retail: what they check, change and answer is its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent_envs.envs.helpdesk.released_tables import Shop
from agent_envs.errors import ToolError

_REASONS = ("no longer needed", "ordered by mistake")
_NAMES = ("first_name", "last_name")
_ADDRESS = ("address1", "address2", "city", "state", "country", "zip")


def _spend(method: dict[str, Any], amount: float) -> None:
    """Take an amount from a gift card; a negative one is given back."""
    if method["source"] == "gift_card":
        method["balance"] = round(method["balance"] - amount, 2)


def _cover(method: dict[str, Any], amount: float, what: str) -> None:
    if method["source"] == "gift_card" and method["balance"] < amount:
        raise ToolError(f"insufficient gift card balance to pay for the {what}")


def _item(order: dict[str, Any], item_id: str) -> Any:
    return next(item for item in order["items"] if item["item_id"] == item_id)


def _missing(wanted: Sequence[str], order: dict[str, Any]) -> str | None:
    """Return the first of some items that is wanted more often than an order has it."""
    lacking = Counter(wanted) - Counter(item["item_id"] for item in order["items"])
    return next((name for name in wanted if name in lacking), None)


def _difference(pairs: Sequence[tuple[Any, Any]]) -> float:
    difference = 0
    for item, variant in pairs:  # in this order, since the sum of floats is the one released
        difference += variant["price"] - item["price"]
    return difference


class Retail(Shop):
    """The shop's tables and tools."""

    def _order(self, number: str, status: str, done: str) -> Any:
        """Return an order of a status; `done` is what cannot be done to others."""
        order = self.row("orders", number)
        if order["status"] != status:
            raise ToolError(f"non-{status} order cannot be {done}")
        return order

    def _methods(self, order: dict[str, Any], payment: str) -> Any:
        """Return the payment methods of the customer of an order, if the payment's is among them."""
        methods = self.row("users", order["user_id"])["payment_methods"]
        if payment not in methods:
            raise ToolError("payment method not found")
        return methods

    def _replacements(self, order: dict[str, Any], old: Sequence[str], new: Sequence[str]) -> list[tuple[Any, Any]]:
        """Return the item of an order and the variant that takes its place, for each pair of ids."""
        if item := _missing(old, order):
            raise ToolError(f"{item} not found")
        if len(old) != len(new):
            raise ToolError("the number of items to be exchanged should match")
        pairs = []
        for item_id, new_id in zip(old, new, strict=True):
            item = _item(order, item_id)
            variant = self.row("products", item["product_id"])["variants"].get(new_id)
            if not (variant and variant["available"]):
                raise ToolError(f"new item {new_id} not found or available")
            pairs.append((item, variant))
        return pairs

    def _first(self, fits: Any) -> str:
        user_id = next((key for key, user in self.rows("users").items() if fits(user)), None)
        if user_id is None:
            raise ToolError("user not found")
        return user_id

    def cancel_pending_order(self, *, order_id: str, reason: str) -> Any:
        """Cancel an order and give the payments back."""
        order = self._order(order_id, "pending", "cancelled")
        if reason not in _REASONS:
            raise ToolError("invalid reason")
        refunds = [{**payment, "transaction_type": "refund"} for payment in order["payment_history"]]
        for payment in refunds:
            method = payment["payment_method_id"]
            if "gift_card" in method:
                _spend(self._methods(order, method)[method], -payment["amount"])
        order |= {"status": "cancelled", "cancel_reason": reason}
        order["payment_history"] += refunds
        return order

    def exchange_delivered_order_items(
        self, *, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Any:
        """Ask for an exchange; nothing is paid yet."""
        order = self._order(order_id, "delivered", "exchanged")
        difference = round(_difference(self._replacements(order, item_ids, new_item_ids)), 2)
        _cover(self._methods(order, payment_method_id)[payment_method_id], difference, "price difference")
        order |= {"status": "exchange requested", "exchange_items": sorted(item_ids)}
        order |= {"exchange_new_items": sorted(new_item_ids), "exchange_payment_method_id": payment_method_id}
        order["exchange_price_difference"] = difference
        return order

    def find_user_id_by_email(self, *, email: str) -> str:
        """Return the id of the first customer with an address."""
        return self._first(lambda user: user["email"].lower() == email.lower())

    def find_user_id_by_name_zip(self, **asked: str) -> str:
        """Return the id of the first customer of a name at a postcode."""
        wanted = [*(asked[part].lower() for part in _NAMES), asked["zip"]]
        return self._first(lambda user: [*(user["name"][n].lower() for n in _NAMES), user["address"]["zip"]] == wanted)

    def get_order_details(self, *, order_id: str) -> Any:
        """Return an order."""
        return self.row("orders", order_id)

    def get_product_details(self, *, product_id: str) -> Any:
        """Return a product."""
        return self.row("products", product_id)

    def list_all_product_types(self) -> str:
        """Return the ids of all products by their names."""
        products = self.rows("products").values()
        return json.dumps({product["name"]: product["product_id"] for product in products}, sort_keys=True)

    def modify_pending_order_address(self, *, order_id: str, **address: str) -> Any:
        """Change where an order goes."""
        order = self._order(order_id, "pending", "modified")
        order["address"] = {name: address[name] for name in _ADDRESS}
        return order

    def modify_pending_order_items(
        self, *, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Any:
        """Change items of an order, and pay the difference."""
        order = self._order(order_id, "pending", "modified")
        pairs = self._replacements(order, item_ids, new_item_ids)
        difference = _difference(pairs)
        method = self._methods(order, payment_method_id)[payment_method_id]
        _cover(method, difference, "new item")
        kind = "payment" if difference > 0 else "refund"
        payment = {"transaction_type": kind, "amount": abs(difference), "payment_method_id": payment_method_id}
        order["payment_history"].append(payment)
        _spend(method, difference)
        for item_id, (_, variant) in zip(item_ids, pairs, strict=True):
            _item(order, item_id).update({name: variant[name] for name in ("item_id", "price", "options")})
        order["status"] = "pending (item modified)"
        return order

    def modify_pending_order_payment(self, *, order_id: str, payment_method_id: str) -> Any:
        """Pay an order with something else."""
        order = self._order(order_id, "pending", "modified")
        methods, history = self._methods(order, payment_method_id), order["payment_history"]
        if len(history) > 1 or history[0]["transaction_type"] != "payment":
            raise ToolError("there should be exactly one payment for a pending order")
        old, amount = history[0]["payment_method_id"], history[0]["amount"]
        if old == payment_method_id:
            raise ToolError("the new payment method should be different from the current one")
        _cover(methods[payment_method_id], amount, "order")
        order["payment_history"] += [
            {"transaction_type": kind, "amount": amount, "payment_method_id": method}
            for kind, method in (("payment", payment_method_id), ("refund", old))
        ]
        _spend(methods[payment_method_id], amount)
        if "gift_card" in old:
            _spend(methods[old], -amount)
        return order

    def modify_user_address(self, *, user_id: str, **address: str) -> Any:
        """Change where a customer lives."""
        user = self.row("users", user_id)
        user["address"] = {name: address[name] for name in _ADDRESS}
        return user

    def return_delivered_order_items(self, *, order_id: str, item_ids: list[str], payment_method_id: str) -> Any:
        """Ask to return items; nothing is paid yet."""
        order = self._order(order_id, "delivered", "returned")
        self._methods(order, payment_method_id)
        if (
            "gift_card" not in payment_method_id
            and payment_method_id != order["payment_history"][0]["payment_method_id"]
        ):
            raise ToolError("payment method should be either the original payment method or a gift card")
        if _missing(item_ids, order):
            raise ToolError("some item not found")
        order |= {"status": "return requested", "return_items": sorted(item_ids)}
        order["return_payment_method_id"] = payment_method_id
        return order
