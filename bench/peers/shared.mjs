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

// fill inserts jobs in batches until the task has no more or a number of seconds is over.
export async function fill(insert, limit) {
  const start = performance.now();
  let next = 0;
  let jobs = 0;
  const inserter = async () => {
    while (next < task.jobs && seconds(start) < limit) {
      const numbers = batch(next, Math.min(task.batch, task.jobs - next));
      next += numbers.length;
      await insert(numbers);
      jobs += numbers.length;
    }
  };
  await Promise.all(Array.from({ length: task.inserters }, inserter));
  return { jobs, seconds: seconds(start) };
}

const batch = (from, count) => Array.from({ length: count }, (_, i) => from + i);

// cycle inserts jobs while a helper runs them, at most a window ahead of it, until the
// time is over, and waits until all are done.
export async function cycle(insert, left) {
  let ran = 0;
  await working((count) => (ran += count));
  begin();
  const start = performance.now();
  let next = 0;
  const inserter = async () => {
    while (seconds(start) < task.seconds) {
      if (next - ran > task.window) {
        await pause(1);
        continue;
      }
      const numbers = batch(next, task.batch);
      next += task.batch;
      await insert(numbers);
    }
  };
  await Promise.all(Array.from({ length: task.inserters }, inserter));
  while (ran < next || (await left()) > 0) await pause(2);
  return { jobs: next, seconds: seconds(start) };
}

// Half inserts jobs at a rate, whatever the answers, and notes how long after the time at
// which its call was due each job starts. The first fifth does not count.
export class Half {
  async measure(insert) {
    const every = 2; // milliseconds between two calls
    const total = Math.floor(task.rate * task.seconds);
    const due = new Float64Array(total);
    const took = [];
    let ran = 0;
    await working((count, numbers, times) => {
      numbers.forEach((n, i) => {
        if (n >= total / 5) took.push(times[i] - due[n]);
      });
      ran += count;
    });
    begin();
    const start = now();
    const calls = [];
    for (let from = 0, k = 1; from < total; k++) {
      const at = start + k * every;
      if (at > now()) await pause(at - now());
      const to = Math.min(Math.floor((task.rate * k * every) / 1000), total);
      due.fill(at, from, to);
      while (from < to) {
        const numbers = batch(from, Math.min(task.batch, to - from));
        from += numbers.length;
        calls.push(insert(numbers));
      }
    }
    await Promise.all(calls);
    while (ran < total) await pause(2);
    const elapsed = (now() - start) / 1000;
    took.sort((a, b) => a - b);
    const rank = (p) => took[Math.min(took.length - 1, Math.floor(p * took.length))];
    return { jobs: total, seconds: elapsed, p50: rank(0.5), p99: rank(0.99) };
  }
}

// now is in milliseconds and the same in all processes.
const now = () => performance.timeOrigin + performance.now();

// Meter counts jobs that were run and remembers when each step was complete.
export class Meter {
  constructor(jobs = task.jobs) {
    begin();
    this.jobs = jobs;
    this.step = Math.min(task.step || jobs, jobs);
    this.n = 0;
    this.marks = [];
    this.start = performance.now();
    this.done = new Promise((done) => (this.finish = done));
  }
  hit(count = 1) {
    const before = Math.floor(this.n / this.step);
    this.n += count;
    for (let i = before; i < Math.floor(this.n / this.step); i++) this.marks.push(seconds(this.start));
    if (this.n >= this.jobs) this.finish();
  }
  outcome() {
    const out = { jobs: this.jobs, seconds: seconds(this.start) };
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
  for (let i = 0; i < count; i++) helper((count) => meter.hit(count));
}

// helper runs one more process of the same script and passes on how many jobs it has
// started, and for row half which and when.
export function helper(started) {
  const child = fork(process.argv[1], [process.argv[2], "worker"], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
  child.on("message", (m) => started(m.ran, m.numbers, m.times));
  return child;
}

// released waits in a helper until its parent calls release.
export const released = () => new Promise((done) => process.once("message", done));
export const release = (child) => child.send("go");

// working runs a helper and waits until it has had time to connect.
async function working(started) {
  release(helper(started));
  await pause(1500);
}

// reporter collects for the parent process, which is told every 10 ms.
export function reporter() {
  let ran = 0;
  let numbers = [];
  let times = [];
  setInterval(() => {
    if (ran > 0) process.send(task.row === "half" ? { ran, numbers, times } : { ran });
    ran = 0;
    numbers = [];
    times = [];
  }, 10);
  process.on("disconnect", () => process.exit(0));
  if (task.row !== "half") return () => ran++;
  return (n) => {
    ran++;
    numbers.push(n);
    times.push(now());
  };
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
