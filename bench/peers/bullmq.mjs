// BullMQ on Redis. A process of its own works, since one of Node has one thread.
import { Queue, Worker } from "bullmq";
import { answer, begin, cycle, fill, Half, helper, Meter, pause, release, released, reporter, single, task, workerRole } from "./shared.mjs";

const name = "noop";
const concurrency = 500;
const [host, port] = task.url.split(":");
const connection = { host, port: Number(port), maxRetriesPerRequest: null };

if (workerRole) {
  const handle = reporter();
  await released();
  const worker = new Worker(name, async (job) => handle(job.data.n), { connection, concurrency, removeOnComplete: { count: 0 } });
  worker.on("error", (error) => console.error(error.message));
} else {
  const queue = new Queue(name, { connection, defaultJobOptions: { removeOnComplete: true, removeOnFail: true } });
  await queue.waitUntilReady();
  const one = (n) => queue.add(name, { n });
  const many = (numbers) => queue.addBulk(numbers.map((n) => ({ name, data: { n } })));
  const left = async () => {
    const counts = await queue.getJobCounts("wait", "active", "prioritized", "delayed");
    return Object.values(counts).reduce((sum, n) => sum + n, 0);
  };
  switch (task.row) {
    case "bulk": {
      begin();
      await answer(await fill(many, task.seconds));
    }
    case "single":
      await answer(await single(one));
    case "drain": {
      let meter;
      const child = helper((count) => meter.hit(count));
      const { jobs } = await fill(many, task.fill);
      await pause(1000);
      meter = new Meter(jobs);
      release(child);
      await Promise.race([meter.done, pause(task.seconds * 1000)]);
      const end = meter.start + task.seconds * 1000;
      let rest = await left();
      for (; rest > 0 && performance.now() < end; rest = await left()) await pause(2);
      await answer({ ...meter.outcome(), jobs: jobs - rest });
    }
    case "cycle":
      await answer(await cycle(many, left));
    case "half":
      await answer(await new Half().measure(many));
  }
  throw new Error(`row ${task.row} is unknown`);
}
