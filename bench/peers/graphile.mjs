// graphile-worker with its batched mode: jobs are fetched ahead into a local
// queue, and completions are flushed together. Two processes drain.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { answer, begin, bulk, helpers, Latency, Meter, pause, reporter, settle, single, task, workerRole } from "./shared.mjs";

const processes = 2;
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
const preset = {
  worker: {
    connectionString: task.url,
    concurrentJobs: 100,
    maxPoolSize: 10,
    localQueue: { size: 2000, ttl: 300_000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger,
  },
};
const work = (handle) => run({ preset, logger, noHandleSignals: true, taskList: { noop: async (payload) => handle(payload.n) } });

if (workerRole) {
  await work(reporter());
} else {
  const pool = new pg.Pool({ connectionString: task.url, max: Math.max(task.callers, 10) });
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  const many = (numbers) => utils.addJobs(numbers.map((n) => ({ identifier: "noop", payload: { n } })));
  const one = (n) => utils.addJob("noop", { n });
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
      helpers(processes, meter);
      await meter.done;
      for (let left = 1; left > 0; await pause(5)) {
        left = (await pool.query("SELECT count(*)::int AS n FROM graphile_worker._private_jobs")).rows[0].n;
      }
      await answer(meter.outcome());
    }
    case "latency": {
      const latency = new Latency();
      await work((n) => latency.started(n));
      await pause(1000);
      await answer(await latency.measure(one));
    }
    case "idle":
      await work(() => {});
      await pause(task.seconds * 1000);
      await answer({});
  }
  throw new Error(`row ${task.row} is unknown`);
}
