// node search.js SITE QUERY...: what the site's own search finds, as JSON: for each query the pages, best first.
"use strict"
const fs = require("fs"), path = require("path"), vm = require("vm")

const [site, ...queries] = process.argv.slice(2)
const workers = path.join(site, "assets", "javascripts", "workers")
const script = path.join(workers, fs.readdirSync(workers).find(name => /^search\..*\.js$/.test(name)))

let listen, answer
const worker = {
  console, URL,
  addEventListener: (type, listener) => { listen = listener },
  postMessage: message => answer(message),
  importScripts: (...files) => files.forEach(file => load(path.join(workers, file))),
}
worker.self = worker
vm.createContext(worker)
const load = file => vm.runInContext(fs.readFileSync(file, "utf-8"), worker, { filename: file })
const ask = (type, data) => new Promise(resolve => { answer = resolve; listen({ data: { type, data } }) })

async function main() {
  load(script)
  const index = JSON.parse(fs.readFileSync(path.join(site, "search", "search_index.json"), "utf-8"))
  await ask(0, { ...index, options: { suggest: true } })
  const found = {}
  for (const query of queries) {
    const { data } = await ask(2, query)
    found[query] = data.items.map(sections => sections[0].location)
  }
  console.log(JSON.stringify(found))
}

main()
