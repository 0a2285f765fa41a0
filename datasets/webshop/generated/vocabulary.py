"""What the generated shop sells: a category tree of invented goods, their attributes and options, and brand names.

A line of `_KINDS`, continued where it is indented, is one kind of product:

    query | category path | what titles and shoppers call it | attributes | options | dollars | occasions

An attribute is said before the noun ("gluten free crackers"), after "with" where it begins with +, after "for" where it
begins with >. An option is NAME=LIST: the name shoppers see, and the list of `OPTION_VALUES` it is drawn from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

__all__ = ["ADJECTIVES", "BRAND_ENDS", "BRAND_STARTS", "OPTION_VALUES", "Kind", "kinds"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of product."""

    department: str
    """The released field `category`."""
    query: str
    """What it is searched by; the released field of this name."""
    path: str
    """Where it stands in the category tree, joined as released."""
    nouns: tuple[str, ...]
    """What titles and shoppers call it."""
    attributes: tuple[str, ...]
    """Its attributes; + and > say how they are phrased."""
    options: tuple[tuple[str, str], ...]
    """Names of options, each with its list of values."""
    dollars: tuple[int, int]
    """The cheapest and the dearest."""
    occasions: tuple[str, ...]
    """Where it is used."""


_ROOTS = {
    "beauty": "Beauty & Personal Care",
    "electronics": "Electronics",
    "fashion": "Clothing, Shoes & Jewelry",
    "garden": "Home & Kitchen",
    "grocery": "Grocery & Gourmet Food",
}

_KINDS = {
    "beauty": """
face moisturizer | Skin Care > Face > Creams & Moisturizers | face moisturizer, face cream, day cream | fragrance
    free, cruelty free, oil free, dermatologist tested, non greasy, +hyaluronic acid, +green tea, +vitamin c,
    >sensitive skin, >dry skin, >fine lines | scent=scent, size=volume | 8 64 | morning, night, winter
shampoo | Hair Care > Shampoo & Conditioner > Shampoos | shampoo, hair wash, shampoo bar | sulfate free, paraben
    free, plant based, cruelty free, color safe, +argan oil, +tea tree, +coconut oil, >damaged hair, >oily hair,
    >dry scalp | scent=scent, size=volume | 6 48 | daily care, travel, salons
lipstick | Makeup > Lips > Lipstick | lipstick, lip color, liquid lipstick | long lasting, highly pigmented, smudge
    proof, paraben free, cruelty free, travel size, +matte finish, +shea butter, +vitamin e, >everyday makeup |
    color=shade, style=finish | 5 38 | parties, weddings, the office
hair brush | Hair Care > Styling Tools > Brushes | hair brush, detangling brush, paddle brush | heat resistant, easy
    clean, anti static, eco friendly, travel size, +boar bristles, +bamboo handle, +cushioned base, >curly hair,
    >thick hair, >wet hair | color=color, style=brush | 6 42 | blow drying, home, travel
nail polish set | Foot, Hand & Nail Care > Nail Polish | nail polish set, gel polish kit, nail lacquer set | quick
    drying, long lasting, non toxic, high gloss, chip resistant, +led lamp, +base coat, +gift box, >nail art,
    >beginners | color=palette, size=bottles | 9 66 | salons, home, parties
makeup brush set | Tools & Accessories > Makeup Brushes & Tools > Brush Sets | makeup brush set, cosmetic brushes,
    brush kit | cruelty free, easy clean, super soft, travel size, vegan, +synthetic bristles, +storage case,
    +wooden handles, >eye shadow, >liquid foundation | color=color, size=pieces | 8 74 | beginners, artists, travel
body lotion | Skin Care > Body > Lotions | body lotion, body butter, hand and body cream | fast absorbing, alcohol
    free, dermatologist tested, cruelty free, paraben free, +shea butter, +aloe vera, +oatmeal, >dry skin,
    >sensitive skin | scent=scent, size=volume | 5 44 | summer, winter, after a bath
toothbrush | Oral Care > Toothbrushes & Accessories | toothbrush, electric toothbrush, sonic toothbrush |
    rechargeable, bpa free, waterproof, eco friendly, easy use, +soft bristles, +two minute timer, +travel case,
    >sensitive teeth, >sensitive gums, >kids | color=color, style=pack | 7 120 | home, travel, families
perfume | Fragrance > Eau de Parfum | perfume, eau de parfum, body mist | long lasting, alcohol free, travel size,
    cruelty free, vegan, +floral notes, +essential oils, +gift box, >date night, >sensitive skin | scent=scent,
    size=volume | 12 140 | evenings, gifts, the office
hair dryer | Hair Care > Styling Tools > Hair Dryers | hair dryer, blow dryer, ionic dryer | fast drying, low noise,
    foldable, lightweight, dual voltage, +cool shot button, +ceramic grille, +diffuser, >curly hair, >fine hair |
    color=color, style=plug | 18 180 | salons, home, travel
""",
    "electronics": """
bluetooth speaker | Portable Audio & Video > Portable Speakers & Docks | bluetooth speaker, portable speaker,
    wireless speaker | water resistant, hands free, dust proof, long lasting, easy carry, +stereo sound, +deep bass,
    +carrying strap, +fast charging, >outdoor parties | color=color, style=bundle | 15 190 | the beach, the shower,
    camping
hdmi cable | Accessories & Supplies > Cables & Interconnects | hdmi cable, display cable, video cable | gold plated,
    high speed, tangle free, double shielded, heavy duty, plug and play, +braided jacket, +ethernet, >gaming
    consoles, >4k screens | color=color, size=length | 5 58 | home theaters, offices, classrooms
phone case | Cell Phones & Accessories > Cases > Basic Cases | phone case, protective cover, phone cover | shock
    proof, slim fit, anti scratch, drop tested, non slip, +wireless charging, +card slots, +kickstand, +screen
    protector, >everyday carry | color=color, size=phone | 6 49 | work, hiking, travel
headphones | Headphones > Over-Ear Headphones | headphones, over ear headphones, headset | noise cancelling,
    foldable, hands free, lightweight, long lasting, +soft ear pads, +built in microphone, +volume control, +fast
    charging, >kids, >video calls | color=color, style=connection | 14 260 | commuting, school, studios
tablet stand | Computers & Accessories > Tablet Accessories > Stands | tablet stand, tablet holder, desk stand |
    height adjustable, foldable, non slip, heavy duty, easy assemble, +aluminum alloy, +cable slot, +rubber pads,
    >video calls, >cooking | color=color, size=screen | 9 72 | kitchens, desks, bedside tables
security camera | Camera & Photo > Video Surveillance > Cameras | security camera, surveillance camera, home camera
    | weather resistant, motion activated, easy install, plug and play, rechargeable, +night vision, +two way audio,
    +wide angle, +1080p hd, >indoor use | color=color, style=bundle | 24 210 | porches, nurseries, garages
power bank | Cell Phones & Accessories > Chargers > Portable Power Banks | power bank, portable charger, battery
    pack | fast charging, ultra slim, high capacity, travel size, lightweight, +usb port, +led display, +built in
    cable, >camping, >air travel | color=color, size=capacity | 12 96 | hiking, festivals, travel
computer mouse | Computers & Accessories > Mice | computer mouse, wireless mouse, ergonomic mouse | rechargeable,
    low noise, hands free, left handed, plug and play, +side buttons, +usb receiver, +rubber grips, >small hands,
    >gaming | color=color, style=connection | 8 110 | offices, school, travel
smart watch band | Wearable Technology > Bands | watch band, smart watch strap, replacement band | quick release,
    sweat proof, water resistant, easy adjust, non allergenic, +stainless steel clasp, +genuine leather, +breathable
    mesh, >small wrists, >swimming | color=color, size=band | 6 64 | sports, the office, every day
projector screen | Television & Video > Projection Screens | projector screen, projection screen, movie screen |
    wrinkle free, ultra hd, easy install, wall mounted, easy clean, foldable, +black backing, +carry bag, >outdoor
    movies, >home theater | size=diagonal, style=ratio | 22 320 | backyards, classrooms, living rooms
""",
    "fashion": """
womens dress | Women > Clothing > Dresses | dress, maxi dress, wrap dress | machine washable, hand wash, short
    sleeve, wrinkle free, slim fit, +elastic waist, +side pockets, +floral print, >summer parties, >everyday wear |
    color=color, size=clothes, fit type=fit | 14 120 | beach days, weddings, the office
mens dress shirt | Men > Clothing > Shirts > Dress Shirts | dress shirt, button down shirt, oxford shirt | slim fit,
    machine washable, wrinkle free, long sleeve, moisture wicking, +stretch fabric, +chest pocket, +spread collar,
    >business meetings, >daily wear | color=color, size=clothes, fit type=fit | 16 96 | the office, weddings, dinner
womens sandals | Women > Shoes > Sandals | sandals, flat sandals, slide sandals | open toe, slip resistant,
    lightweight, quick drying, water resistant, +ankle strap, +memory foam, +arch support, +rubber sole, >wide feet
    | color=color, size=shoe | 12 110 | beach days, walking, vacations
mens running shoes | Men > Shoes > Athletic | running shoes, sneakers, trainers | slip resistant, lightweight,
    machine washable, non marking, quick drying, +memory foam, +arch support, +rubber sole, +breathable mesh, >flat
    feet | color=color, size=shoe | 24 180 | the gym, trails, walking
leggings | Women > Clothing > Leggings | leggings, yoga pants, workout tights | high waist, squat proof, moisture
    wicking, machine washable, tummy control, +side pockets, +four way stretch, +mesh panels, >yoga practice,
    >everyday wear | color=color, size=clothes | 11 84 | the gym, running, home
winter jacket | Men > Clothing > Jackets & Coats | winter jacket, puffer jacket, insulated coat | water resistant,
    wind proof, machine washable, fleece lined, lightweight, +detachable hood, +zipper pockets, +elastic cuffs,
    >cold weather, >skiing | color=color, size=clothes | 34 290 | hiking, commuting, travel
crossbody bag | Women > Handbags & Wallets > Crossbody Bags | crossbody bag, shoulder bag, small purse | water
    resistant, lightweight, anti theft, hand made, vegan leather, +adjustable strap, +zipper closure, +card slots,
    >travel days, >everyday wear | color=color, style=bag | 15 160 | concerts, travel, shopping
mens socks | Men > Clothing > Socks | socks, crew socks, ankle socks | moisture wicking, machine washable, odor
    resistant, anti blister, hand linked, +cushioned sole, +arch support, +merino wool, >wide calves, >hiking boots
    | color=color, size=socks, style=pack | 7 52 | work, sports, winter
pajama set | Women > Clothing > Lingerie, Sleep & Lounge > Sets | pajama set, sleepwear set, lounge set | machine
    washable, long sleeve, hand wash, wrinkle free, super soft, +elastic waist, +button closure, +side pockets, >hot
    sleepers, >cold weather | color=color, size=clothes | 16 88 | home, gifts, travel
sun hat | Women > Accessories > Hats & Caps > Sun Hats | sun hat, bucket hat, wide brim hat | foldable, hand wash,
    quick drying, lightweight, sun blocking, +chin strap, +upf 50 protection, +breathable mesh, >large heads,
    >gardening | color=color, size=hat | 9 58 | beach days, hiking, fishing
""",
    "garden": """
floor lamp | Furniture > Living Room Furniture > Lamps | floor lamp, standing lamp, reading lamp | energy efficient,
    easy assemble, space saving, flicker free, height adjustable, +glass shade, +remote control, +touch switch, +usb
    port, >living room | color=metal, size=height | 28 240 | bedrooms, reading corners, offices
throw pillow covers | Bedding > Decorative Pillows > Pillow Covers | throw pillow covers, cushion covers, pillow
    cases | machine washable, super soft, fade resistant, double sided, hand made, +hidden zipper, +tassel trim,
    +geometric print, >living room, >outdoor patio | color=color, size=square, style=pack | 8 56 | sofas, guest
    rooms, porches
area rug | Home Decor > Rugs > Area Rugs | area rug, carpet, floor rug | machine washable, non slip, stain
    resistant, easy clean, pet friendly, +rubber backing, +low pile, +vintage print, >dining room, >high traffic |
    color=color, size=rug | 32 380 | bedrooms, hallways, nurseries
bookshelf | Furniture > Home Office Furniture > Bookcases | bookshelf, bookcase, shelving unit | easy assemble,
    space saving, heavy duty, wall mounted, scratch resistant, +steel frame, +solid wood, +adjustable shelves,
    >small spaces, >living room | color=wood, size=tiers | 38 330 | home offices, kitchens, dorms
curtains | Home Decor > Window Treatments > Curtains | curtains, window curtains, drapes | machine washable, energy
    efficient, noise reducing, light blocking, easy install, +grommet top, +linen texture, +thermal lining, >sliding
    doors, >living room | color=color, size=curtain | 16 118 | bedrooms, nurseries, offices
bar stools | Furniture > Game & Recreation Room Furniture > Bar Stools | bar stools, counter stools, kitchen stools
    | height adjustable, easy assemble, easy clean, heavy duty, stackable, +faux leather, +foot rest, +steel frame,
    +swivel seat, >dining room | color=color, style=pack | 58 420 | kitchens, home bars, patios
storage baskets | Storage & Organization > Baskets & Bins | storage baskets, storage bins, woven baskets | foldable,
    eco friendly, hand made, heavy duty, easy clean, +cotton rope, +leather handles, +fitted lid, >closet shelves,
    >kids toys | color=color, size=basket, style=pack | 12 78 | nurseries, laundry rooms, closets
mattress topper | Bedding > Mattress Toppers | mattress topper, bed topper, mattress pad | machine washable, fade
    resistant, non slip, hypoallergenic, ventilated, +memory foam, +cooling gel, +bamboo cover, >back pain, >hot
    sleepers | size=bed, style=thickness | 44 310 | guest rooms, dorms, campers
wall clock | Home Decor > Clocks > Wall Clocks | wall clock, silent clock, decorative clock | battery operated, easy
    read, hand made, water resistant, non ticking, +glass cover, +wooden frame, +large numerals, >living room, >home
    office | color=wood, size=diameter | 14 98 | kitchens, classrooms, gifts
planter pots | Patio, Lawn & Garden > Planters > Pots | planter pots, flower pots, plant containers | weather
    resistant, eco friendly, uv resistant, hand made, lightweight, +drainage holes, +matching saucers, +ceramic
    glaze, >indoor plants, >succulents | color=color, size=diameter, style=pack | 11 104 | balconies, windowsills,
    gardens
""",
    "grocery": """
protein bars | Snack Foods > Bars > Protein Bars | protein bars, snack bars, nutrition bars | gluten free, low
    sugar, high protein, non gmo, plant based, keto friendly, dairy free, +no artificial colors, +whole nuts, >on
    the go | flavor name=sweet, size=count | 9 58 | hiking, school lunches, the office
ground coffee | Beverages > Coffee > Ground Coffee | ground coffee, dark roast coffee, coffee grounds | usda
    organic, fair trade, low acid, freshly roasted, non gmo, gluten free, +rich flavor, +resealable bag, >cold brew,
    >french press | flavor name=coffee, size=weight | 8 64 | mornings, offices, gifts
herbal tea | Beverages > Tea > Herbal | herbal tea, tea bags, loose leaf tea | caffeine free, usda organic, non gmo,
    hand picked, kosher certified, individually wrapped, +natural flavors, +real fruit, >iced tea, >gift giving |
    flavor name=tea, size=count | 6 46 | evenings, guests, winter
trail mix | Snack Foods > Nuts & Seeds > Trail Mix | trail mix, nut mix, snack mix | gluten free, low sodium, non
    gmo, plant based, dry roasted, usda organic, +no added sugar, +dried fruit, +resealable bag, >on the go | flavor
    name=savory, size=weight | 7 52 | camping, road trips, the office
hot sauce | Sauces, Gravies & Marinades > Hot Sauce | hot sauce, chili sauce, pepper sauce | gluten free, sugar
    free, small batch, shelf stable, fat free, keto friendly, +natural ingredients, +no artificial flavors, >grilled
    meat, >gift giving | flavor name=pepper, size=bottle | 5 44 | barbecues, tacos, wings
crackers | Snack Foods > Crackers | crackers, crispbread, seed crackers | gluten free, low carb, non gmo, oven
    baked, nut free, kosher certified, +whole grain, +sea salt, +no artificial colors, >cheese boards | flavor
    name=savory, size=count | 5 40 | picnics, parties, school lunches
oat milk | Dairy, Cheese & Eggs > Milk Substitutes > Oat Milk | oat milk, oat drink, barista milk | dairy free, soy
    free, shelf stable, non gmo, plant based, low fat, +no added sugar, +added calcium, >cold brew, >baking | flavor
    name=milk, size=carton | 6 54 | breakfast, coffee, smoothies
gummy candy | Snack Foods > Candy > Gummies | gummy candy, fruit gummies, gummy bears | gluten free, fat free, dairy
    free, individually wrapped, nut free, kosher certified, +real fruit, +natural colors, >party bags, >valentine
    day | flavor name=fruit, size=weight | 5 38 | birthdays, movie nights, gifts
olive oil | Cooking & Baking > Oils > Olive | olive oil, cooking oil, extra virgin oil | cold pressed, usda organic,
    first harvest, non gmo, low sodium, sugar free, +rich flavor, +glass bottle, >salad dressing, >gift giving |
    flavor name=oil, size=bottle | 9 86 | kitchens, picnics, gifts
seasoning blend | Herbs, Spices & Seasonings > Mixed Spices | seasoning blend, spice mix, spice rub | gluten free,
    low sodium, sugar free, non gmo, small batch, usda organic, +no artificial flavors, +natural ingredients,
    >grilled meat, >roasted vegetables | flavor name=spice, size=jar | 4 36 | barbecues, weeknights, gifts
""",
}  # fmt: skip

_LISTS = """
color: black; white; grey; navy blue; sky blue; forest green; olive green; burgundy; blush pink; hot pink; mustard
    yellow; orange; purple; lavender; beige; brown; red; teal; charcoal; cream/gold; black/red; white/navy; rose
    gold; mint green
shade: ruby red; dusty rose; coral pink; deep plum; nude beige; berry wine; brick red; peach; mocha brown; fuchsia;
    classic red; mauve
palette: pastel; autumn; nude; neon; ocean; berry; glitter; classic
metal: matte black; brushed nickel; antique brass; polished chrome; bronze; white/gold
wood: walnut; light oak; espresso; rustic brown; white; grey stain; natural; black/brown
scent: unscented; lavender; vanilla; citrus; rose; cedar; coconut; eucalyptus; jasmine; green apple
volume: 1.7 fl oz; 2 fl oz; 3.4 fl oz; 5 ounce; 8 ounce; 12 ounce; 16 fl oz; 33.8 fl oz
finish: matte; satin; glossy; metallic; sheer
brush: paddle; round; vented; pocket; wide tooth
bottles: 6 bottles; 8 bottles; 12 bottles; 20 bottles; 24 bottles
pieces: 7 pieces; 10 pieces; 12 pieces; 15 pieces; 18 pieces; 24 pieces
pack: 1 pack; 2 pack; 3 pack; 4 pack; 6 pack; 12 pack
plug: us plug; eu plug; uk plug
bundle: speaker only; bundle with case; bundle with mount; bundle with cable; two unit kit
length: 3 feet; 6 feet; 10 feet; 15 feet; 25 feet; 50 feet
phone: nova 5; nova 5 pro; nova 6; nova 6 max; orbit s8; orbit s9; orbit s9 plus; lumo 3; lumo 3 lite
connection: corded; wireless; 2.4 ghz; dual mode
screen: 7-9 inch; 9-11 inch; 11-13 inch; 4-8 inch
capacity: 5000mah; 10000mah; 20000mah; 26800mah
band: 38mm small; 40mm medium; 42mm large; 44mm large; 45mm x-large
diagonal: 60 inch; 80 inch; 100 inch; 120 inch; 150 inch
ratio: 16:9; 4:3; 1:1
clothes: x-small; small; medium; large; x-large; xx-large; 3x-large; 4x-large plus
fit: regular; petite; tall; relaxed
shoe: 6; 6.5; 7; 7.5 wide; 8; 8.5; 9; 9.5 wide; 10; 10.5; 11; 12 women/10.5 men
socks: 5-7; 6-9; 8-11; 10-13
bag: zip top; flap; bucket; double zip
hat: small; medium; large; x-large; one size
height: 48"; 55"; 59"; 65"; 72"
square: 12 x 12 inch; 16 x 16 inch; 18 x 18 inch; 20 x 20 inch; 12 x 20 inch
rug: 2 x 3 ft; 3 x 5 ft; 4 x 6 ft; 5 x 7 ft; 8 x 10 ft; 2 x 8 ft runner; 6 ft round
tiers: 3-tier; 4-tier; 5-tier; 6-tier
curtain: 42" w x 63" l; 42" w x 84" l; 52" w x 84" l; 52" w x 95" l
basket: small; medium; large; 11 x 11 inch; 13 x 15 inch; 16 x 12 inch
bed: twin; twin xl; full; queen; king; california king
thickness: 2 inch; 3 inch; 4 inch
diameter: 6 inch; 8 inch; 10 inch; 12 inch; 14 inch; 16 inch
sweet: chocolate chip; peanut butter; cookies and cream; salted caramel; lemon cake; birthday cake; banana bread;
    raspberry
count: 8 count; 12 count (pack of 1); 12 count (pack of 4); 16 count; 20 count; 24 count; 36 count
coffee: house blend; french vanilla; hazelnut; breakfast blend; espresso roast; mocha
weight: 6 ounce (pack of 1); 8 ounce; 12 ounce (pack of 3); 1 pound; 2 pound; 5 pound
tea: chamomile; licorice; ginger lemon; hibiscus; rooibos; apple cinnamon; verbena
savory: sea salt; thyme; smoked paprika; garlic herb; honey mustard; everything; cracked pepper
pepper: habanero; jalapeno; ghost pepper; chipotle; mango habanero; garlic serrano
bottle: 5 fl oz; 8.5 fl oz; 12 fl oz (pack of 2); 16.9 fl oz; 25.4 fl oz; 5 fl oz (pack of 3)
milk: original; vanilla; chocolate; unsweetened; extra rich
carton: 11 fl oz (pack of 12); 32 fl oz; 32 fl oz (pack of 6); 64 fl oz
fruit: strawberry; sour cherry; mixed berry; peach; watermelon; green apple; tropical
oil: mild; robust; garlic; lemon; basil; chili
spice: taco; cajun; lemon pepper; smoky barbecue; italian; curry; ranch
jar: 2.5 ounce; 4 ounce; 6 ounce; 9 ounce (pack of 2); 16 ounce
"""


def _lines(table: str) -> list[str]:
    """The lines of a table; what is indented goes on from the line before."""
    return table.strip().replace("\n    ", " ").splitlines()


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


OPTION_VALUES: dict[str, tuple[str, ...]] = {
    name: tuple(value.strip() for value in values.split(";"))
    for name, _, values in (line.partition(":") for line in _lines(_LISTS))
}
"""Lists of values, as released: a slash is shown with spaces and a bar."""

ADJECTIVES = _words(
    "Premium Classic Modern Everyday Deluxe Signature Essential Original Compact Professional Studio Heritage "
    "Urban Natural Vintage Select"
)
"""Words of praise in titles."""

BRAND_STARTS = _words(
    "Al Bar Bel Cor Dal El Fen Gal Hol Il Jor Kel Lor Mar Nor Or Pel Quin Ral Sol Tam Ul Ver Wil Xan Yor Zel "
    "Bram Cael Dren"
)
"""First parts of invented brands."""

BRAND_ENDS = _words(
    "ado aria by brook cott dane den dora esse field ford gate haven ine ix lane leaf more nia ova ridge rose "
    "ton vale wick wyn"
)
"""Last parts of invented brands."""


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds, department by department."""
    found = []
    for department, table in _KINDS.items():
        for line in _lines(table):
            query, path, nouns, attributes, options, dollars, occasions = (part.strip() for part in line.split(" | "))
            low, high = dollars.split()
            axes = [axis.partition("=") for axis in options.split(", ")]
            found.append(
                Kind(
                    department=department,
                    query=query,
                    path=" › ".join([_ROOTS[department], *path.split(" > ")]),
                    nouns=tuple(nouns.split(", ")),
                    attributes=tuple(attributes.split(", ")),
                    options=tuple((name, values) for name, _, values in axes),
                    dollars=(int(low), int(high)),
                    occasions=tuple(occasions.split(", ")),
                )
            )
    return tuple(found)
