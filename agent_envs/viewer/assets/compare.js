// Two runs on the same tasks: their success side by side, and their episodes.
const PAIR_COLUMNS = [["question", "task", "what"], ["left", "first", "number"], ["right", "second", "number"], ["change", "change", "number"]];
const NONE = "\u2013";
const side = row => [row[F.run], row[F.phase], at(row[F.at])].filter(part => part !== "").join(" \u00b7 ");
let pairLine = null;
function readSides() {
  const names = [...new Set(all.map(({ row }) => side(row)))].slice(0, 2000), before = [$("first").value, $("second").value];
  $("compare").hidden = names.length < 2;
  ["first", "second"].forEach((id, k) => {
    if ($(id).childElementCount === names.length) return;
    $(id).replaceChildren(...names.map(name => { const option = el("option", "", name); option.value = name; return option; }));
    $(id).value = names.includes(before[k]) ? before[k] : k ? names.at(-1) : names[0];
    $(id).onchange = () => { filter(); if (lines.length) choosePair(lines[0]); };
  });
}
// The tasks that both have played, each with its episodes on either side and the difference of success.
function pairs(list) {
  const by = name => Map.groupBy(list.filter(({ row }) => side(row) === name), ({ row }) => taskKey(row));
  const first = by($("first").value), second = by($("second").value), share = members => solvedOf(members) / members.length;
  let tasks = [...first].filter(([key]) => second.has(key)).map(([key, left]) => ({ left, right: second.get(key), change: share(second.get(key)) - share(left), i: left[0].i }));
  const mean = name => tasks.length ? tasks.reduce((n, task) => n + share(task[name]), 0) / tasks.length : 0;
  const percent = x => `${(100 * x).toFixed(1)} %`;
  $("totals").textContent = tasks.length ? `${many(tasks.length, "task")} in both: ${percent(mean("left"))} solved, then ${percent(mean("right"))}; ${tasks.filter(t => t.change > 0).length} better, ${tasks.filter(t => t.change < 0).length} worse` : "no task that both have played";
  const value = { left: task => share(task.left), right: task => share(task.right), change: task => task.change, question: task => task.left[0].row[F.question] }[order.field];
  if (value) tasks = sorted(tasks, value, ({ i }) => i);
  else tasks.sort((a, b) => Math.abs(b.change) - Math.abs(a.change) || a.i - b.i);
  return tasks;
}
function pairRow(line) {
  const tr = el("tr", pairLine && line.i === pairLine.i ? "chosen" : ""), open = button("", () => {});
  open.className = "open";
  tr.append(what(line.left[0].row, open));
  for (const name of ["left", "right"]) tr.append(el("td", "number", `${solvedOf(line[name])}/${line[name].length}`));
  tr.append(el("td", `number ${line.change > 0 ? "yes" : line.change < 0 ? "no" : ""}`, line.change ? `${line.change > 0 ? "+" : "\u2212"}${Math.abs(100 * line.change).toFixed(0)} %` : NONE));
  tr.onclick = () => choosePair(line);
  return [tr];
}
async function choosePair(line, picks = { left: 0, right: 0 }) {
  pairLine = line;
  draw();
  const box = el("div", "sides"), mine = ++viewing;
  const sides = await Promise.all(["left", "right"].map(async (name, k) => {
    const pane = el("div"), members = line[name], pick = Math.min(picks[name], members.length - 1), heading = el("h2", "", $(k ? "second" : "first").value);
    pane.append(heading);
    if (members.length > 1) {
      const select = el("select");
      select.setAttribute("aria-label", `episode of ${$(k ? "second" : "first").value}`);
      members.forEach(({ row }, n) => { const option = el("option", "", `sample ${row[F.sample]}: ${row[F.success] ? "solved" : "not solved"}, return ${number(row[F.return])}`); option.value = n; select.append(option); });
      select.value = pick;
      select.onchange = () => choosePair(line, { ...picks, [name]: Number(select.value) });
      pane.append(select);
    }
    pane.append(...await shownEpisode(members[pick], pane));
    return pane;
  }));
  if (mine !== viewing) return;
  box.append(...sides);
  $("episode").replaceChildren(box);
  $("episode").scrollTop = 0;
  document.body.dataset.pane = "episode";
  chosen = line.left[Math.min(picks.left, line.left.length - 1)].i;
}
