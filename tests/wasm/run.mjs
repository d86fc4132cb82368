// Runs the program of lib.rs: node run.mjs FILE.wasm
import { readFileSync } from "node:fs";

const module = new WebAssembly.Module(readFileSync(process.argv[2]));
const start = () => new WebAssembly.Instance(module, {}).exports;

const decisions = start().limits_calls();
if (decisions !== 21002) throw new Error(`${decisions} decisions, 21002 are expected`);

let panicked = false;
try {
  start().reads_the_system_clock();
} catch {
  panicked = true;
}
if (!panicked) throw new Error("a limiter on the system's clock does not panic");
console.log(`wasm32-unknown-unknown: ${decisions} decisions were right, 2 passed, 0 failed`);
