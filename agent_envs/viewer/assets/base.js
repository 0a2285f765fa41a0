const $ = id => document.getElementById(id);
const LONG = 20000;
// Text reaches the page as text alone. Control characters are shown as their pictures: they do nothing.
const safe = text => String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, c => c === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + c.charCodeAt(0)))
  .replace(/[\u0080-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
function el(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = safe(text);
  return node;
}
function button(label, act, title) {
  const node = el("button", "", label);
  node.type = "button";
  node.onclick = act;
  if (title) node.title = safe(title);
  return node;
}
const number = x => typeof x !== "number" ? String(x ?? "") : Number.isInteger(x) ? String(x) : x.toFixed(3);
const many = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
const words = x => typeof x === "string" ? x : JSON.stringify(x, null, 1) ?? "";
const say = text => { $("said").textContent = ""; setTimeout(() => { $("said").textContent = safe(text); }, 30); };

function block(className, label, text) {
  const part = el("div", className);
  if (label) part.append(el("div", "label", label));
  const pre = el("pre", "", text.length > LONG ? text.slice(0, LONG) : text);
  part.append(pre);
  reachable(pre);
  if (text.length > LONG) {
    const more = button(`show all ${text.length} characters`, () => { pre.textContent = safe(text); more.remove(); });
    part.append(more);
  }
  return part;
}
// A box that scrolls has to be reached by the keyboard too.
const scrolling = new ResizeObserver(entries => {
  for (const { target } of entries) if (target.scrollHeight > target.clientHeight + 1) { target.tabIndex = 0; target.setAttribute("role", "region"); target.setAttribute("aria-label", "text"); }
});
const reachable = pre => scrolling.observe(pre);

function folded(label, fill) {
  const part = el("details", "part");
  part.append(el("summary", "label", label));
  part.addEventListener("toggle", () => { if (part.childElementCount === 1) part.append(...fill()); });
  return part;
}
const stored = { // a page in a file may have no storage
  get: key => { try { return localStorage.getItem("agentr1." + key); } catch { return null; } },
  set: (key, value) => { try { localStorage.setItem("agentr1." + key, value); } catch { /* for this visit alone */ } },
};
function setTheme(theme) {
  document.documentElement.style.colorScheme = theme;
  const dark = theme === "dark" || (!theme && matchMedia("(prefers-color-scheme: dark)").matches);
  $("theme").setAttribute("aria-label", dark ? "light colours" : "dark colours");
  $("theme").dataset.next = dark ? "light" : "dark";
}
function changeTheme() {
  stored.set("theme", $("theme").dataset.next);
  setTheme($("theme").dataset.next);
}
async function copy(text, node) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page in a file may not have the clipboard
    const area = el("textarea", "unseen");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = node.textContent;
  node.textContent = "copied";
  say("copied");
  setTimeout(() => { node.textContent = label; }, 1200);
}
const typing = () => ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName) && document.activeElement.type !== "checkbox";
// The keys of a page: [keys, what they do, function]. They do nothing while a person types.
function listen(keys) {
  for (const [shown, about] of keys) if (about) $("keylist").append(el("dt", "", shown), el("dd", "", about));
  const by = new Map(keys.flatMap(([shown, , act]) => act ? shown.split(" or ").map(key => [key, act]) : []));
  addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    if (event.key === "Escape") document.activeElement.blur();
    if (typing()) return;
    const name = { ArrowDown: "\u2193", ArrowUp: "\u2191", ArrowLeft: "\u2190", ArrowRight: "\u2192" }[event.key] ?? event.key;
    const act = by.get(name);
    if (!act) return;
    event.preventDefault();
    act();
  });
  $("help").onclick = () => $("keys").showModal();
  $("theme").onclick = changeTheme;
  setTheme(stored.get("theme") ?? "");
}
const PATH = location.origin + location.pathname.replace(/[^/]*$/, ""); // without the token, which fetch() refuses in an address
async function ask(name, query, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const address = PATH + name + (query ? "?" + new URLSearchParams(query) : "");
  const answer = await fetch(address, { credentials: "same-origin", cache: "no-store", ...options }).catch(() => { throw new Error("the server does not answer"); });
  const result = await answer.json();
  if (!answer.ok) throw new Error(result.error ?? answer.statusText);
  return result;
}
