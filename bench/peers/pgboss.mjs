// pg-boss, drained by two loops that fetch and complete 5,000 jobs at a time,
// which was faster than its own work().
import pg from "pg";
import { PgBoss } from "pg-boss";
import { answer, begin, bulk, Latency, Meter, pause, settle, single, task } from "./shared.mjs";

const queue = "noop";
const fetched = 5000;
const loops = 2;

const boss = new PgBoss({ connectionString: task.url, max: 16, supervise: true, schedule: false });
boss.on("error", (error) => console.error(error.message));
await boss.start();
await boss.createQueue(queue, { policy: "standard" });
const pool = new pg.Pool({ connectionString: task.url, max: 2 });
const many = (numbers) => boss.insert(queue, numbers.map((n) => ({ data: { n } })));
const one = (n) => boss.send(queue, { n });

async function drain(meter) {
  while (meter.n < task.jobs) {
    const jobs = await boss.fetch(queue, { batchSize: fetched });
    if (!jobs.length) {
      await pause(5);
      continue;
    }
    await boss.complete(queue, jobs.map((job) => job.id));
    meter.hit(jobs.length);
  }
}

switch (task.row) {
  case "bulk":
    begin();
    await answer(await bulk(many));
  case "single":
    await answer(await single(one));
  case "drain":
  case "backlog": {
    await bulk(many);
    await settle(pool);
    const meter = new Meter();
    await Promise.all(Array.from({ length: loops }, () => drain(meter)));
    const left = (await pool.query("SELECT count(*)::int AS n FROM pgboss.job WHERE name = $1 AND state < 'completed'", [queue])).rows[0].n;
    if (left > 0) throw new Error(`${left} jobs are not complete`);
    await answer(meter.outcome());
  }
  case "latency": {
    const latency = new Latency();
    await boss.work(queue, { batchSize: 1000, pollingIntervalSeconds: 0.5 }, async (jobs) => {
      for (const job of jobs) latency.started(job.data.n);
    });
    await pause(1000);
    await answer(await latency.measure(one));
  }
  case "idle":
    await boss.work(queue, { pollingIntervalSeconds: 0.5 }, async () => {});
    await pause(task.seconds * 1000);
    await answer({});
}
throw new Error(`row ${task.row} is unknown`);
