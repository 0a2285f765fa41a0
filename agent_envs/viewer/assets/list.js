// The list: filters, order, pages, episodes grouped by task.
const PER_PAGE = 100;
const SELECTS = [["run", "all runs"], ["phase", "all phases"], ["at", "all training steps"], ["env", "all environments"], ["split", "all splits"], ["family", "all families"], ["sample", "all samples"], ["stop", "all ends"]];
// field, label, kind, whether a phone leaves it out
const COLUMNS = [["success", "", ""], ["question", "task", "what"], ["run", "run", "", 1], ["phase", "phase", "", 1], ["at", "step", "number", 1], ["env", "environment", "", 1], ["split", "split", "", 1], ["family", "family", "", 1], ["sample", "sample", "number", 1], ["steps", "turns", "number"], ["return", "return", "number"], ["score", "score", "number", 1], ["stop", "end", "", 1]];
const APART = ["run", "phase", "at", "sample", "score", "stop"]; // in which the episodes of a task differ
let shown = [], lines = [], page = 0, chosen = -1, mode = "", order = { field: "", down: false };
let inTexts = null; // the episodes whose texts have the words; null if nothing was looked for
const opened = new Set(); // tasks whose episodes are listed
const varied = new Map(); // field -> its values in order, where there are several
const at = value => value < 0 ? "" : value;
const cell = (row, field) => field === "at" ? at(row[F.at]) : row[F[field]];
const taskKey = row => row[F.env] + "\n" + row[F.task];
const byValue = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1;

function readValues() {
  const sets = new Map([...SELECTS.map(([field]) => [field, new Set()]), ["score", new Set()], ["steps", new Set()]]);
  let same = true;
  for (const { row } of all) {
    for (const [field] of SELECTS) sets.get(field).add(row[F[field]]);
    same &&= row[F.score] === row[F.return];
  }
  varied.clear();
  for (const [field] of SELECTS) {
    const values = [...sets.get(field)].filter(value => value !== "" && value !== -1).sort(byValue);
    if (values.length > 1 || (values.length && sets.get(field).size > 1)) varied.set(field, values);
  }
  if (!same) varied.set("score", []);
}
function selects() {
  for (const [field, label] of SELECTS) {
    let select = $(field);
    if (!select) {
      select = el("select");
      select.id = field;
      select.setAttribute("aria-label", label.replace("all ", ""));
      select.onchange = filter;
      $("selects").append(select);
    }
    const before = select.value, values = (varied.get(field) ?? []).slice(0, 2000);
    if (select.childElementCount === values.length + 1) continue;
    select.replaceChildren(...[["", label], ...values.map(value => [String(value), field === "at" ? `step ${value}` : field === "sample" ? `sample ${value}` : value])].map(([value, text]) => { const option = el("option", "", text); option.value = value; return option; }));
    select.value = before;
    select.hidden = !varied.has(field);
  }
  if ($("solved")) return;
  const solved = el("select"), least = el("label", "", "return \u2265 "), input = el("input");
  solved.id = "solved";
  solved.setAttribute("aria-label", "solved");
  for (const [value, text] of [["", "solved or not"], ["1", "solved"], ["0", "not solved"]]) { const option = el("option", "", text); option.value = value; solved.append(option); }
  Object.assign(input, { id: "least", type: "number", step: "any" });
  solved.onchange = input.oninput = filter;
  least.append(input);
  $("selects").append(solved, least);
}
const chooseSelect = field => varied.has(field) ? $(field).value : "";
function matching() {
  const want = $("search").value.trim().toLowerCase(), found = $("contents").checked && want ? inTexts ?? new Set() : null;
  const fields = SELECTS.map(([field]) => [F[field], chooseSelect(field)]).filter(([, value]) => value !== "");
  const solved = $("solved").value, least = $("least").value === "" ? -Infinity : Number($("least").value);
  return all.filter(({ row, i }) =>
    fields.every(([f, value]) => String(row[f]) === value) && (solved === "" || row[F.success] === Number(solved)) && !(row[F.return] < least) &&
    (found ? found.has(i) : !want || `${row[F.task]}\n${row[F.question]}\n${row[F.id]}`.toLowerCase().includes(want)));
}
function filter(keep = false) {
  shown = matching();
  if (order.field && order.field !== "success") shown = sorted(shown, ({ row }) => row[F[order.field]], ({ i }) => i);
  else if (order.field) shown = sorted(shown, ({ row }) => row[F.success], ({ i }) => i);
  else if (meta.live && !mode) shown.reverse();
  lines = mode === "pair" ? pairs(shown) : mode === "group" ? groups(shown) : shown;
  if (keep !== true) page = 0;
  page = Math.min(page, Math.max(0, Math.ceil(lines.length / PER_PAGE) - 1));
  totals();
  draw();
}
function sorted(list, value, place) {
  const sign = order.down ? -1 : 1;
  return list.map(item => [value(item), place(item), item]).sort((a, b) => a[0] === b[0] ? a[1] - b[1] : sign * byValue(a[0], b[0])).map(([, , item]) => item);
}
const solvedOf = list => list.reduce((n, { row }) => n + row[F.success], 0);
const meanReturn = list => list.reduce((n, { row }) => n + Number(row[F.return]), 0) / list.length;
function totals() {
  if (mode === "pair") return;
  const tasks = mode === "group" ? `${many(lines.length, "task")}, ` : "", of = `of ${many(all.length, "episode")}`;
  $("totals").textContent = shown.length ? `${tasks}${shown.length} ${of}, ${(100 * solvedOf(shown) / shown.length).toFixed(1)} % solved, mean return ${number(meanReturn(shown))}` : `0 ${of}`;
}
function groups(list) {
  const tasks = [...Map.groupBy(list, ({ row }) => taskKey(row)).values()].map(members => ({ members, share: solvedOf(members) / members.length, i: members[0].i }));
  if (!order.field) return tasks;
  const f = F[order.field];
  const value = { success: task => task.share, return: task => meanReturn(task.members) }[order.field] ?? (task => task.members[0].row[f]);
  return sorted(tasks, value, ({ i }) => i);
}

const columns = () => mode === "pair" ? PAIR_COLUMNS : COLUMNS.filter(([field]) => ["success", "question", "steps", "return"].includes(field) || (varied.has(field) && !(mode === "group" && APART.includes(field))));
function heads() {
  $("heads").replaceChildren(...columns().map(([field, label, kind, extra]) => {
    const th = el("th", [kind === "number" ? "number" : "", extra ? "extra" : ""].join(" ").trim()), arrow = order.field === field ? (order.down ? " \u2193" : " \u2191") : "";
    th.scope = "col";
    if (order.field === field) th.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    const sort = button((label || "solved") + arrow, () => { order = { field, down: order.field === field && !order.down }; filter(); });
    if (!label) sort.textContent = "\u2713" + arrow, sort.setAttribute("aria-label", "solved");
    th.append(sort);
    return th;
  }));
}
function mark(success) {
  const node = el("span", success ? "yes" : "no", success ? "\u2713" : "\u2717");
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", success ? "solved" : "not solved");
  return node;
}
function meter(share, text) {
  const box = el("span", "", ""), bar = el("span", "meter"), fill = el("i");
  fill.style.width = `${100 * share}%`;
  bar.append(fill);
  box.append(bar, el("span", "", text));
  return box;
}
function what(row, open, inner) { // among the episodes of a task, what tells them apart
  const td = el("td", "what");
  open.append(el("bdi", "", inner ? [side(row), `sample ${row[F.sample]}`].filter(Boolean).join(" \u00b7 ") : row[F.question] || row[F.task]));
  const task = el("span", "label");
  task.append(el("bdi", "", inner ? row[F.id] : row[F.task]));
  task.title = safe(`${row[F.task]} ${row[F.id]}`);
  td.append(open, task);
  return td;
}
function episodeRow({ row, i }, inner) {
  const tr = el("tr", [i === chosen ? "chosen" : "", inner ? "inner" : ""].join(" ").trim());
  for (const [field, , kind, extra] of columns()) {
    let td;
    if (field === "success") { td = el("td"); td.append(mark(row[F.success])); }
    else if (field === "question") {
      const link = el("a", "open");
      link.href = "#" + i;
      if (i === chosen) link.setAttribute("aria-current", "true");
      td = what(row, link, inner);
    } else {
      td = el("td", kind, kind === "number" ? number(cell(row, field)) : undefined);
      if (kind !== "number") td.append(el("bdi", "", cell(row, field)));
    }
    if (extra) td.classList.add("extra");
    tr.append(td);
  }
  tr.onclick = event => { if (!event.metaKey && !event.ctrlKey) { event.preventDefault(); choose(i); } };
  return tr;
}
function groupRow(task) {
  const { members, share } = task, row = members[0].row, key = taskKey(row), isOpen = opened.has(key), tr = el("tr");
  const only = field => { const values = new Set(members.map(({ row: one }) => one[F[field]])); return values.size === 1 ? cell(row, field) : `${values.size} different`; };
  for (const [field, , kind, extra] of columns()) {
    let td = el("td", kind === "what" ? "" : kind);
    if (field === "success") td.append(meter(share, `${solvedOf(members)}/${members.length}`));
    else if (field === "question") {
      const open = button("", () => {});
      open.className = "open";
      open.setAttribute("aria-expanded", isOpen);
      open.append(el("span", "label", isOpen ? "\u25be " : "\u25b8 "));
      td = what(row, open);
    } else if (field === "return") td.textContent = number(meanReturn(members));
    else if (field === "steps") td.textContent = number(members.reduce((n, { row: one }) => n + one[F.steps], 0) / members.length);
    else td.append(el("bdi", "", only(field)));
    if (extra) td.classList.add("extra");
    tr.append(td);
  }
  tr.onclick = () => { if (isOpen) opened.delete(key); else opened.add(key); draw(); };
  return isOpen ? [tr, ...members.slice(0, 500).map(member => episodeRow(member, true))] : [tr];
}
function draw() {
  heads();
  const focused = document.activeElement?.closest?.("#rows tr"), place = focused ? [...$("rows").children].indexOf(focused) : -1;
  const part = lines.slice(page * PER_PAGE, (page + 1) * PER_PAGE);
  $("rows").replaceChildren(...part.flatMap(line => mode === "pair" ? pairRow(line) : mode === "group" ? groupRow(line) : episodeRow(line)));
  if (place >= 0) $("rows").children[place]?.querySelector("a, button")?.focus();
  const last = Math.max(0, Math.ceil(lines.length / PER_PAGE) - 1);
  const move = (label, name, to) => { const b = button(label, () => { page = to; draw(); $("scroll").scrollTop = 0; }, name); b.setAttribute("aria-label", name); b.disabled = to < 0 || to > last; return b; };
  $("pages").replaceChildren(...last ? [move("\u2190", "page before", page - 1), el("span", "", `page ${page + 1} of ${last + 1}`), move("\u2192", "next page", page + 1)] : []);
}

let search = 0; // the number of the search that goes on
function searched() {
  const mine = ++search, text = $("search").value.trim();
  inTexts = null;
  $("progress").textContent = "";
  if (!$("contents").checked || !text) { filter(); return; }
  setTimeout(async () => {
    if (mine !== search) return;
    inTexts = new Set();
    let drawn = 0;
    try {
      await lookThrough(text, (hits, done) => {
        for (const i of hits) inTexts.add(i);
        $("progress").textContent = done < all.length ? `${inTexts.size} found, ${Math.round(100 * done / all.length)} %` : `${inTexts.size} found`;
        if (done >= all.length || performance.now() - drawn > 500) { drawn = performance.now(); filter(true); }
      }, () => mine === search);
    } catch (error) {
      $("progress").textContent = safe(error.message);
    }
  }, 250);
}
function setMode(name) {
  mode = mode === name ? "" : name;
  order = { field: "", down: false };
  $("group").setAttribute("aria-pressed", mode === "group");
  $("compare").setAttribute("aria-pressed", mode === "pair");
  $("pair").hidden = mode !== "pair";
  document.body.classList.toggle("pair", mode === "pair");
  filter();
  if (mode === "pair" && lines.length) choosePair(lines[0]);
}
// The episodes in the order in which they are listed, those of closed tasks included.
const inOrder = () => mode === "group" ? lines.flatMap(({ members }) => members) : shown;
