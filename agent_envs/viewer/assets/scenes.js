// What a person sees of a task: a shop, a household, a browser with its search. A scene is drawn from what the policy is
// told and from the listed actions, which its buttons take; it is null for a text of another form.
const SCENES = [[/\/WebShop-/, shop], [/\/ALFWorld-/, household], [/\/(HotpotQA|TwoWikiMultihopQA|MuSiQue)-/, browser]];
let tab = null; // the search whose results are open, null for the last one

function scene(e, prompts) {
  const draw = SCENES.find(([id]) => id.test(e.env_id))?.[1], texts = prompts.map(prompt => prompt[0]?.content);
  if (!draw || !e.prompts.every(prompt => prompt.text) || !texts.every(text => typeof text === "string")) return null;
  return draw(e, texts, e.steps.at(-1)?.info ?? e.reset_info);
}
const listed = label => state.choices.findIndex(choice => choice.label === label);
// A button that takes an action of the list; dead where the action is not listed now.
function takes(label, shown, className = "") {
  const n = listed(label), node = button("", () => pick(n), label);
  node.className = className;
  node.disabled = n < 0;
  node.append(el("bdi", "", shown));
  return node;
}
function box(className, ...inside) {
  const node = el("div", className);
  node.append(...inside.filter(Boolean));
  return node;
}
// A line to write in: what is written is handed to `act`.
function line(label, placeholder, does, go) {
  const form = el("form", "line"), input = el("input");
  input.setAttribute("aria-label", label);
  input.placeholder = placeholder;
  input.autocomplete = "off";
  input.required = true;
  form.append(input, el("button", "main", go));
  form.onsubmit = event => { event.preventDefault(); does(input.value); };
  return form;
}
// A choice of the list that takes one text, as a line to write in; null where there is none.
function asks(begin, label, placeholder, go) {
  const n = state.choices.findIndex(choice => choice.label.startsWith(begin) && choice.arguments.length);
  return n < 0 ? null : line(label, placeholder, text => does("choose", { number: n, values: { [state.choices[n].arguments[0].name]: text } }), go);
}

// -- WebShop
const ARTICLE = /^[A-Z0-9]{10}$/, PRICE = /^\$[\d.,]+( to \$[\d.,]+)?$/, LEAVES = ["Description", "Features", "Reviews", "Attributes"];
// The two sites spell what can be clicked in their own letters.
const clicking = word => [word, word.toLowerCase()].map(text => `click[${text}]`).find(label => listed(label) >= 0);
const click = (word, shown = word, className = "") => takes(clicking(word) ?? `click[${word}]`, shown, className);
function shop(e, texts, info) {
  const told = texts.at(-1).split(" [SEP] ").map(word => word.trim()), at = told.indexOf("Instruction:");
  if (told.length < 3) return released(texts.at(-1), info, /^Instruction: (.*)$/m.exec(texts[0])?.[1]);
  const rest = at < 0 ? told : told.slice(at + 2), paged = rest.find(word => /^Page \d+ /.test(word));
  if (told[0].startsWith("Thank you")) return front(null, bought(info));
  if (paged) return front(told[at + 1], pages(paged), shelf(rest.map((word, i) => ARTICLE.test(word) ? [word, rest[i + 1], rest[i + 2]] : null).filter(Boolean)));
  const page = rest.slice(rest.indexOf("< Prev") + 1), price = page.findIndex(word => word.startsWith("Price:")), groups = [];
  if (rest.includes("Buy Now")) {
    for (const word of page.slice(0, Math.max(0, price - 1))) if (clicking(word) && groups.length) groups.at(-1).values.push(word); else groups.push({ name: word, values: [] });
    const facts = page.slice(price).filter(word => /^(Price|Rating):/.test(word)).map(word => word.replace("Price: ", ""));
    return front(told[at + 1], click("< Prev", "\u2039 back to the results"), product(page[price - 1] ?? "", facts, groups, Object.values(picked(info.url)).map(String)));
  }
  if (rest.includes("< Prev")) return front(told[at + 1], click("< Prev", "\u2039 back to the product"), leaf(page));
  return asks("search[", "search the shop", "", "") && front(told[at + 1]);
}
// The site of Agent-R1's shops, which says the same in lines.
function released(text, info, wanted) {
  const field = name => new RegExp(`^${name}: (.*)$`, "m").exec(text)?.[1], lines = text.split("\n");
  if (/^Thank you/.test(text)) return front(null, bought(info));
  if (!wanted) return null;
  const goods = lines.map(line => /^\[\d+\] ([A-Z0-9]{10}) \| (.*?) \| ([^|]*?) \|/.exec(line)).filter(Boolean).map(([, ...parts]) => parts);
  if (goods.length) return front(wanted, pages(`page ${field("Page") ?? ""}`), shelf(goods));
  const back = clicking("< Prev") && click("< Prev", "\u2039 back");
  if (field("ASIN") && field("Title")) {
    const groups = lines.map(line => /^- (.+?) \(selected: (.*?)\): (.*)$/.exec(line)).filter(Boolean).map(([, name, taken, values]) => ({ name, taken, values: values.split(", ") }));
    const facts = [field("Price"), field("Category"), field("Summary")].filter(Boolean);
    return front(wanted, back, product(field("Title"), facts, groups, groups.map(group => group.taken)));
  }
  return front(wanted, back, lines[0] === "WebShop" ? null : leaf(lines.filter(line => !line.startsWith("Instruction: "))));
}
function front(wanted, ...inside) {
  const find = asks("search[", "search the shop", "search for products", "Search"), bar = box("top", el("strong", "brand", "WebShop"), find);
  if (clicking("Back to Search")) bar.append(click("Back to Search", "\u2039 back to search"));
  return box("scene shop", bar, wanted && box("wanted", el("span", "label", "you want"), el("p", "", wanted)), ...inside);
}
const pages = shown => box("turn", clicking("< Prev") && click("< Prev", "\u2039 previous"), el("span", "label", shown), clicking("Next >") && click("Next >", "next \u203a"));
const shelf = goods => box("shelf", ...goods.map(parts => article(...parts)));
const leaf = texts => box("leaf", ...texts.filter(Boolean).map(text => el("p", "", text)));
// A product has no picture here: its initials stand on a colour of its own.
function cover(title, className) {
  const node = el("div", `cover ${className}`, title.split(/\s+/).slice(0, 2).map(word => word[0] ?? "").join("").toUpperCase());
  node.style.setProperty("--hue", [...title].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 360, 7));
  node.setAttribute("aria-hidden", "true");
  return node;
}
function article(id, title = "", price = "") {
  const node = click(id, title, "article");
  node.prepend(cover(title, "small"));
  node.append(el("span", "price", PRICE.test(price) ? price : ""), el("span", "label", id));
  return node;
}
function product(title, facts, groups, taken) {
  const chosen = taken.map(value => value.toLowerCase()), options = groups.map(group => box("", el("h3", "", group.name), box("values", ...group.values.map(value => {
    const node = click(value);
    node.setAttribute("aria-pressed", chosen.includes(value.toLowerCase()));
    return node;
  }))));
  return box("product", cover(title, "large"), box("", el("h2", "", title), ...facts.map(fact => el("p", PRICE.test(fact) ? "price" : "label", fact)), ...options,
    box("values", ...LEAVES.filter(clicking).map(word => click(word)))), box("buy", click("Buy Now", "Buy now", "main")));
}
function picked(url) {
  try {
    return JSON.parse(decodeURIComponent(String(url)).match(/\{.*\}$/)[0]);
  } catch { return {}; }
}
function bought(info) {
  const node = box("leaf", el("h2", "", "Thank you for shopping with us"), el("p", info.success ? "yes" : "no", `score ${number(info.score)} of 1`));
  const why = { type: "r_type", attributes: "r_att", options: "r_option", price: "r_price" };
  for (const [name, key] of Object.entries(why)) if (info.reward_info?.[key] !== undefined) node.append(el("p", "label", `${name}: ${number(Number(info.reward_info[key]))}`));
  return node;
}

// -- ALFWorld
const things = text => text === "nothing" ? [] : text.replace(/,? and /, ", ").split(", ").map(thing => thing.replace(/^an? /, ""));
// What has been seen at each place, and since taken from there or put there.
function remembered(e, texts) {
  const seen = new Map();
  texts.forEach((text, k) => {
    const action = k ? /^(take|move|put) (.+?) (?:from|to|in\/on) (.+)$/.exec(e.steps[k - 1].action.trim()) : null;
    if (action && /^You (pick up|move|put)/.test(text)) {
      const left = (seen.get(action[3]) ?? []).filter(thing => thing !== action[2]);
      seen.set(action[3], action[1] === "take" ? left : [...left, action[2]]);
    }
    for (const [, place, list] of text.matchAll(/On the ([a-z]+ \d+), you see ([^.]*)\./g)) seen.set(place, things(list));
    for (const [, place, how, list] of text.matchAll(/The ([a-z]+ \d+) is (open|closed)\.(?: In it, you see ([^.]*)\.)?/g)) seen.set(place, how === "closed" ? null : things(list ?? "nothing"));
  });
  return seen;
}
function household(e, texts, info) {
  const places = things(/you see ([^.]*)\./.exec(texts[0])?.[1] ?? "nothing"), task = /Your task is to: ([^\n]*?)\.?$/m.exec(texts[0])?.[1];
  if (!places.length || !task) return null;
  places.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const now = String(info.anchor ?? ""), near = things(/facing the ([^.]+)\./.exec(now)?.[1] ?? "nothing"), held = things(/You are carrying: ([^\n]*)\./.exec(now)?.[1] ?? "nothing");
  const seen = remembered(e, texts), labels = state.choices.map(choice => choice.label);
  const about = thing => labels.filter(label => ` ${label} `.includes(` ${thing} `) && !label.startsWith("go to "));
  const last = label => label.startsWith("examine"), verbs = list => box("verbs", ...list.sort((a, b) => last(a) - last(b)).map(label => takes(label, VERBS[label.split(" ")[0]] ?? label.split(" ")[0])));
  const how = thing => [...now.matchAll(/^(Hot|Cool|Clean|Sliced|Used): ([^\n]*)\.$/gm)].filter(([, , list]) => things(list).includes(thing)).map(([, mark]) => mark.toLowerCase()).join(", ");
  const row = thing => box("thing", el("bdi", "", thing), el("span", "label", how(thing)), verbs(about(thing)));
  const plan = box("plan", ...places.map(place => {
    const node = takes(`go to ${place}`, place, "place"), known = seen.get(place);
    if (near.includes(place)) {
      node.classList.add("here");
      node.title = "you are here";
      node.setAttribute("aria-current", "location");
    }
    node.classList.add(...(KINDS.find(([names]) => names.test(place)) ?? ["", "store"]).slice(1));
    node.append(el("span", "label", near.includes(place) ? "you are here" : !seen.has(place) ? "" : known === null ? "closed" : known.length ? known.join(", ") : "empty"));
    return node;
  }));
  const around = box("near", ...near.map(place => {
    const inside = seen.get(place), own = about(place).filter(label => /^(open|close|examine|use|toggle)\b/.test(label));
    return box("", el("h2", "", place), inside?.length ? "" : el("p", "label", inside === null ? "closed" : inside ? "empty" : ""), verbs(own), ...(inside ?? []).map(row));
  }), box("", el("h2", "", "in your hand"), ...held.map(row), !held.length && el("p", "label", "nothing")));
  const others = box("verbs", ...["look", "inventory", "help"].filter(label => listed(label) >= 0).map(label => takes(label, label)));
  return box("scene house", box("wanted", el("span", "label", "your task"), el("p", "", task)), el("p", "told", texts.at(-1).replace(/^-=.*=-\s*/, "")), plan, around, others);
}
const VERBS = { move: "put here", put: "put here" };
const KINDS = [[/^(fridge|freezer)/, "cold"], [/^(microwave|stove|toaster|oven|coffeemachine)/, "hot"], [/^(sink|bathtub|toilet)/, "water"],
  [/^(desklamp|floorlamp|lamp)/, "light"], [/(table|countertop|desk|bed|sofa|armchair|shelf|ottoman|stand)/, "flat"]];

// -- questions with search
function browser(e, texts, info) {
  const tagged = /<search>/.test(e.instructions), between = (text, tag) => new RegExp(`<${tag}>([^]*?)(</${tag}>|$)`).exec(text)?.[1]?.trim();
  const searches = e.steps.flatMap((step, k) => tagged ? [{ result: { content: between(texts[k + 1], "information") }, query: between(step.action, "search") }].filter(({ result, query }) => result.content && query)
    : (step.info.tool_results ?? []).map((result, i) => ({ result, query: words(step.calls?.[i]?.arguments?.query ?? `step ${k + 1}`) })));
  const find = tagged && !state.over ? line("search", "search the articles", text => does("act", { action: `<search>${text}</search>` }), "Search") : asks("search(", "search", "search the articles", "Search");
  if (!find && !(state.over && searches.length)) return null;
  const open = searches[tab ?? searches.length - 1] ?? searches.at(-1), tabs = box("tabs");
  if (find && open) find.querySelector("input").value = open.query;
  searches.forEach((search, i) => {
    const node = button("", () => { tab = i; show(state); }, search.query);
    node.append(el("bdi", "", search.query));
    node.setAttribute("aria-pressed", search === open);
    tabs.append(node);
  });
  const page = box("scene browser", box("wanted", el("span", "label", "the question"), el("p", "", texts[0])),
    state.over && info.answer && box("leaf", el("p", info.success ? "yes" : "no", `your answer: ${info.answer}`)), find && box("top", find), searches.length > 1 && tabs);
  if (open) page.append(found(open));
  else page.append(el("p", "label", "Search for what you need to know; then answer in a few words."));
  if (!open?.result || info.invalid_action) page.append(e.steps.length ? el("p", "told", texts.at(-1)) : "");
  if (/<answer>/.test(e.instructions) && !state.over) page.append(box("reply", line("your answer", "your answer, in a few words", text => does("act", { action: `<answer>${text}</answer>` }), "Answer")));
  return page;
}
function found({ result, query }) {
  const passages = words(result.content).replace(/^Doc (\d+)\(Title: "?(.*?)"?\) /gm, "[$1] $2\n").split(/^\[\d+\] /m).slice(1), terms = new Set(query.toLowerCase().match(/[\p{L}\p{N}]{4,}/gu) ?? []), list = box("passages");
  if (!passages.length) return block(result.error ? "leaf bad" : "leaf", "", words(result.content));
  for (const passage of passages) {
    const [title, ...text] = passage.split("\n"), body = el("p");
    for (const piece of text.join("\n").split(/([\p{L}\p{N}]+)/u)) body.append(terms.has(piece.toLowerCase()) ? el("mark", "", piece) : safe(piece));
    const node = el("article", "passage");
    node.append(el("h2", "", title), body);
    list.append(node);
  }
  return list;
}
