// What the sides on Node share. A script gets its task as JSON in its first
// argument and answers with a line of JSON.
import { fork } from "node:child_process";

export const task = JSON.parse(process.argv[2]);
export const workerRole = process.argv[3] === "worker";
export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// answer waits a moment, so that the CPU time of this process and its helpers can
// be read before they end.
export async function answer(outcome) {
  console.log(JSON.stringify(outcome));
  await pause(100);
  process.exit(0);
}

// begin says that the clock starts.
export const begin = () => console.log("begin");

const seconds = (since) => (performance.now() - since) / 1000;

// bulk inserts all jobs of the task in batches.
export async function bulk(insert) {
  const start = performance.now();
  let next = 0;
  const inserter = async () => {
    while (next < task.jobs) {
      const from = next;
      next += task.batch;
      await insert(Array.from({ length: Math.min(task.batch, task.jobs - from) }, (_, i) => from + i));
    }
  };
  await Promise.all(Array.from({ length: task.inserters }, inserter));
  return { jobs: task.jobs, seconds: seconds(start) };
}

// single lets callers insert one job after the other until the time is over. Each
// has inserted one before, so that connections are open and plans made.
export async function single(insert) {
  await Promise.all(Array.from({ length: task.callers }, (_, i) => insert(i)));
  begin();
  const start = performance.now();
  let n = 0;
  const caller = async () => {
    while (seconds(start) < task.seconds) await insert(n++);
  };
  await Promise.all(Array.from({ length: task.callers }, caller));
  return { jobs: n, seconds: seconds(start) };
}

// Meter counts jobs that were run and remembers when each step was complete.
export class Meter {
  constructor() {
    begin();
    this.step = Math.min(task.step, task.jobs);
    this.n = 0;
    this.marks = [];
    this.start = performance.now();
    this.done = new Promise((done) => (this.finish = done));
  }
  hit(count = 1) {
    const before = Math.floor(this.n / this.step);
    this.n += count;
    for (let i = before; i < Math.floor(this.n / this.step); i++) this.marks.push(seconds(this.start));
    if (this.n >= task.jobs) this.finish();
  }
  outcome() {
    const out = { jobs: task.jobs, seconds: seconds(this.start) };
    const k = this.marks.length;
    if (k > 1) {
      out.first = this.step / this.marks[0];
      out.last = this.step / (this.marks[k - 1] - this.marks[k - 2]);
    }
    return out;
  }
}

// helpers runs more processes of the same script, which report what they have run.
export function helpers(count, meter) {
  for (let i = 0; i < count; i++) {
    const child = fork(process.argv[1], [process.argv[2], "worker"], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    child.on("message", (m) => meter.hit(m.ran));
  }
}

// reporter counts for the parent process, which is told every 10 ms.
export function reporter() {
  let ran = 0;
  setInterval(() => {
    if (ran > 0) process.send({ ran });
    ran = 0;
  }, 10);
  process.on("disconnect", () => process.exit(0));
  return () => ran++;
}

// Latency submits jobs at a steady pace and notes when each one starts.
export class Latency {
  constructor() {
    this.begun = [];
    this.took = [];
  }
  started(i) {
    this.took.push(performance.now() - this.begun[i]);
  }
  async measure(insert) {
    const calls = [];
    begin();
    const start = performance.now();
    for (let i = 0; i < task.jobs; i++) {
      await pause(Math.max(0, start + i * task.every - performance.now()));
      this.begun[i] = performance.now();
      calls.push(insert(i));
    }
    await Promise.all(calls);
    while (this.took.length < task.jobs) await pause(10);
    const sorted = this.took.toSorted((a, b) => a - b);
    const at = (p) => sorted[Math.min(sorted.length - 1, Math.floor(p * sorted.length))];
    return { jobs: task.jobs, p50: at(0.5), p99: at(0.99) };
  }
}

// settle brings a database that was filled into the state of one that was filled
// a while ago.
export async function settle(pool) {
  await pool.query("VACUUM ANALYZE");
  await pool.query("CHECKPOINT");
  await pause(1000);
}
