package compare

import (
	"fmt"
	"math"
	"slices"

	"github.com/gopherqueue/gq/services/internal/load"
)

// analysis returns what the figures mean: what each design pays for, what it buys with that, and
// how it scales. What the ranges of the repetitions do not show it does not say.
func (r *Results) analysis() (found []string) {
	if r.Plan.Repetitions < 2 || slices.ContainsFunc(r.Plan.Designs, func(d string) bool { return !r.sound(d) }) {
		return []string{"Nothing is explained here: that takes right answers and repetitions of each cell."}
	}
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if r.both("A", "B") {
		r.hops(say)
		r.shares(say)
		r.polls(say)
	}
	if r.both("B", "C") {
		r.durability(say)
	}
	r.growth(say)
	r.memory(say)
	r.buys(say)
	return found
}

func (r *Results) both(a, b string) bool {
	return slices.Contains(r.Plan.Designs, a) && slices.Contains(r.Plan.Designs, b)
}

// few is the closed loop with the fewest clients, and many that with the most.
func (r *Results) few() Cell {
	return Cell{Concurrency: slices.Min(r.Plan.Concurrency), Work: r.Plan.Work[0], Mix: r.Plan.Mixes[0]}
}

func (r *Results) many() Cell { return r.few().with(slices.Max(r.Plan.Concurrency)) }

func medianOf(m load.Method) metric { return latency("", 2, methodOf(m.String()), p50) }

// more says by how much one figure is above another, or that no difference is shown.
func more(x, y figure, unit string) string {
	switch {
	case x.above(y):
		return fmt.Sprintf("%.2f %s more", x.median-y.median, unit)
	case y.above(x):
		return fmt.Sprintf("%.2f %s less", y.median-x.median, unit)
	default:
		return "no difference shown"
	}
}

// hops explains the latency of A by its calls between processes.
func (r *Results) hops(say func(string, ...any)) {
	cell := r.few()
	status, submit := medianOf(load.Status), medianOf(load.Submit)
	sa, sb := r.figure("A", cell, status), r.figure("B", cell, status)
	ua, ub := r.figure("A", cell, submit), r.figure("B", cell, submit)
	say("Calls between processes. With %d client(s) a GetJobStatus takes %s ms in A and %s ms in B in the median: %s. The gateway of A asks the job service, and a node of B answers from its own memory, so a difference here is the price of one call between processes, with its two encodings and decodings. A SubmitJob makes two such calls, to create the job and to queue it: %s ms in A, %s ms in B, %s.",
		cell.Concurrency, sa.text(2), sb.text(2), more(sa, sb, "ms"), ua.text(2), ub.text(2), more(ua, ub, "ms"))
}

// shares explains the throughput of A by its processor time.
func (r *Results) shares(say func(string, ...any)) {
	cell := r.many()
	a, b := r.figure("A", cell, requestsPerSecond), r.figure("B", cell, requestsPerSecond)
	text := fmt.Sprintf("Processor time. A and B keep everything in memory, so what limits them with %d clients is the %d cores, which they share with the load generator: A answers %s requests/s and B %s.", cell.Concurrency, r.Environment.Cores, a.text(0), b.text(0))
	switch {
	case b.above(a):
		text += fmt.Sprintf(" So a request costs A %.1f times the processor time that it costs B; beside the calls above, A moves each job with eight between its worker, coordinator and the others (fetch, dequeue, two reads of its record, two transitions, outcome, result), which are calls of functions in B.", b.median/a.median)
	default:
		text += " No higher price of A is shown."
	}
	if f := r.Floor; f != nil && len(f.Node) > 0 && len(f.Echo) > 0 {
		node, echo := figureOf(f.Node), figureOf(f.Echo)
		if node.median > 0 && echo.median > 0 {
			ratio := echo.median / node.median
			text += fmt.Sprintf(" A submit costs one node of B %.2f times as much as an answer of a server that does nothing", ratio)
			if ratio < 2 {
				text += ", so most of it is gRPC itself"
			}
			text += "."
		}
	}
	say("%s", text)
}

// polls explains submit to done in A by how its slots look for work.
func (r *Results) polls(say func(string, ...any)) {
	cell := r.few()
	a, b := r.figure("A", cell, doneP50), r.figure("B", cell, doneP50)
	text := fmt.Sprintf("Looking for work. From submit to done a job of %v needs %s ms in A and %s ms in B with %d client(s): %s.", cell.Work, a.text(0), b.text(0), cell.Concurrency, more(a, b, "ms"))
	text += " The two are not the same experiment here. A slot of A that found nothing asks again after 200 ms, since no call of the frozen protocol can wake it, while a job that is added to a node of B wakes a slot of the same process."
	if a.above(b) && a.median-b.median <= 200 {
		text += " The difference is within these 200 ms, so the pause alone can explain it; it says nothing about services against monoliths."
	} else if a.above(b) {
		text += " The difference is more than the pause can explain: jobs also wait for each other."
	}
	say("%s", text)
}

// durability says what C pays for the disk.
func (r *Results) durability(say func(string, ...any)) {
	few, many := r.few(), r.many()
	submit := medianOf(load.Submit)
	c1, b1 := r.figure("C", few, submit), r.figure("B", few, submit)
	c, b := r.figure("C", many, requestsPerSecond), r.figure("B", many, requestsPerSecond)
	text := fmt.Sprintf("Durability. Design C, %s A SubmitJob takes %s ms in the median with %d client(s), %s ms in B, %s.", r.durable(), c1.text(2), few.Concurrency, b1.text(2), more(c1, b1, "ms"))
	if r.How == Containers {
		text += " That is the price of the disk and of a call to another process together."
	}
	text += fmt.Sprintf(" Clients that wait at the same time share a write, so with %d the price is smaller: C answers %s requests/s and B %s", many.Concurrency, c.text(0), b.text(0))
	if b.above(c) {
		text += fmt.Sprintf(", %.0f %% of it.", 100*c.median/b.median)
	} else {
		text += ", no lower rate shown."
	}
	say("%s", text)
}

// growth says how throughput follows the number of clients, and what limits it.
func (r *Results) growth(say func(string, ...any)) {
	few, many := r.few(), r.many()
	if few == many {
		return
	}
	limits := map[string]string{
		"A": "every request passes the one gateway and the one job service, so A grows until one of these processes has a core to itself; a second gateway would need the others to be shared out as well",
		"B": "a job lives on the node that its id names, so nodes share nothing and each new one takes its part; for the same reason ListJobs answers for one node, and the jobs of a node that is gone are gone",
		"C": "all servers share one store, so C grows until the store's commits do not keep up; more servers then add nothing",
	}
	for _, d := range r.Plan.Designs {
		from, to := r.figure(d, few, requestsPerSecond), r.figure(d, many, requestsPerSecond)
		if from.median <= 0 {
			continue
		}
		text := fmt.Sprintf("How %s scales. From %d to %d clients its requests/s go from %s to %s", d, few.Concurrency, many.Concurrency, from.text(0), to.text(0))
		if to.above(from) {
			text += fmt.Sprintf(", %.1f times as many on %d cores", to.median/from.median, r.Environment.Cores)
		} else {
			text += ", no growth shown"
		}
		if why := limits[d]; why != "" {
			text += ". By its structure " + why
		}
		say("%s.", text)
	}
}

// memory compares what the processes of each design occupy.
func (r *Results) memory(say func(string, ...any)) {
	var parts []string
	for _, d := range r.Plan.Designs {
		var sums []float64
		nodes := 0
		for _, row := range r.repetitions(d, r.many()) {
			sum := 0.0
			for _, mib := range row.Memory {
				sum += mib
			}
			if nodes = max(nodes, len(row.Memory)); sum > 0 {
				sums = append(sums, math.Round(sum))
			}
		}
		if len(sums) > 0 {
			parts = append(parts, fmt.Sprintf("%s %s MiB in %d processes", d, figureOf(sums).text(0), nodes))
		}
	}
	if len(parts) > 0 {
		say("Memory. After the load of %d clients the nodes occupy: %s.", r.many().Concurrency, listed(parts))
	}
}

// buys says what the figures cannot show.
func (r *Results) buys(say func(string, ...any)) {
	if slices.Contains(r.Plan.Designs, "A") {
		say("What A buys for its price: each part can be given its own machine, be replaced and fail by itself. Submits and reads go on while the worker is away, and nothing but results is lost with the result service. No figure here shows that, since all parts share one machine; docs/taskqueue.md lists what is lost when which process is killed.")
	}
}
