package native

import (
	"cmp"
	"context"
	"net/http"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

type (
	queueInput struct {
		Name string `path:"name" doc:"The queue's name; a slash in it is %2F."`
	}
	poolInput struct {
		Name string `path:"name" doc:"The pool's name."`
	}
	scheduleInput struct {
		Name string `path:"name" doc:"The schedule's name."`
	}
	queuesInput struct {
		Cursor string    `query:"cursor" doc:"next_cursor of the page before."`
		Limit  countText `query:"limit" doc:"Queues on the page; 1000 unless told, which is also the most."`
	}
	emptyBody       struct{}
	queueOutput     struct{ Body wire.Queue }
	queuesOutput    struct{ Body wire.Queues }
	poolOutput      struct{ Body wire.Pool }
	poolsOutput     struct{ Body wire.Pools }
	scheduleOutput  struct{ Body wire.Schedule }
	schedulesOutput struct{ Body wire.Schedules }
	noOutput        struct{}
)

func (h *HTTP) registerQueues() {
	register(h, route{
		method: http.MethodGet, path: "/v1/queues", id: "list-queues", tag: "queues", summary: "List queues",
		description: "The queues that were configured or ever had a job, by name and with their numbers, a page at a time.",
	}, h.queues)
	register(h, route{
		method: http.MethodGet, path: "/v1/queues/{name}", id: "get-queue", tag: "queues", summary: "Read a queue",
	}, h.queue)
	for _, r := range []route{
		{method: http.MethodPatch, id: "change-queue"},
		{method: http.MethodPut, id: "set-queue"},
	} {
		r.path, r.tag, r.summary = "/v1/queues/{name}", "queues", "Configure a queue"
		r.description = "What is absent stays as it is. A queue that does not exist begins with the defaults. Jobs that exist keep their policy."
		register(h, r, h.changeQueue)
	}
	register(h, route{
		method: http.MethodPost, path: "/v1/queues/{name}/pause", id: "pause-queue", tag: "queues", optional: true, summary: "Pause a queue",
		description: "Nothing is claimed from it any more; submissions go on. A queue that does not exist begins with the defaults, so that it can be paused before its first job.",
	}, h.pauseQueue)
	register(h, route{
		method: http.MethodPost, path: "/v1/queues/{name}/resume", id: "resume-queue", tag: "queues", optional: true, summary: "Resume a queue",
		description: "One that does not exist is not found.",
	}, h.resumeQueue)
	register(h, route{
		method: http.MethodGet, path: "/v1/pools", id: "list-pools", tag: "queues", summary: "List capacity pools",
	}, h.pools)
	register(h, route{
		method: http.MethodPut, path: "/v1/pools/{name}", id: "set-pool", tag: "queues", summary: "Make or change a capacity pool",
	}, h.setPool)
}

func (h *HTTP) queues(ctx context.Context, in *queuesInput, _ *none) (*queuesOutput, error) {
	var p parameters
	limit := cmp.Or(p.count("limit", in.Limit, maxPage), maxPage)
	checkQueueCursor(&p, in.Cursor)
	if err := p.err(); err != nil {
		return nil, err
	}
	queues, next, err := queuePage(ctx, h.engine, in.Cursor, limit)
	if err != nil || len(queues) == 0 {
		return &queuesOutput{wire.QueuesOf(nil, nil)}, err
	}
	names := make([]string, len(queues))
	for i := range queues {
		names[i] = queues[i].Name
	}
	counts, err := h.engine.Counts(ctx, names...)
	if err != nil {
		return nil, err
	}
	out := &queuesOutput{wire.QueuesOf(queues, counts)}
	out.Body.NextCursor = next
	return out, nil
}

// A cursor of queues is the name of the last one on the page before.
func checkQueueCursor(p *parameters, cursor string) {
	if cursor != "" && machine.CheckQueueName(cursor) != nil {
		p.fault("cursor", "%.64q was not the next_cursor of a page of queues", cursor)
	}
}

// queuePage reads a page of queues and the cursor of the next one. A limit of 0 is all
// of them.
func queuePage(ctx context.Context, e engine.API, cursor string, limit int) (page []gq.Queue, next string, err error) {
	if limit == 0 {
		page, err = e.QueuesAfter(ctx, cursor, 0)
		return page, "", err
	}
	page, err = e.QueuesAfter(ctx, cursor, limit+1) // one more says whether there is a next page
	if err == nil && len(page) > limit {
		page = page[:limit]
		next = page[limit-1].Name
	}
	return page, next, err
}

func (h *HTTP) queue(ctx context.Context, in *queueInput, _ *none) (*queueOutput, error) {
	if err := machine.CheckQueueName(in.Name); err != nil {
		return nil, err
	}
	q, err := h.engine.Queue(ctx, in.Name)
	return h.counted(ctx, q, err)
}

func (h *HTTP) counted(ctx context.Context, q gq.Queue, err error) (*queueOutput, error) {
	if err != nil {
		return nil, err
	}
	counts, err := h.engine.Counts(ctx, q.Name)
	if err != nil {
		return nil, err
	}
	count := gq.Count{}
	for _, c := range counts {
		count.Add(c)
	}
	return &queueOutput{wire.QueueOf(&q, &count)}, nil
}

func (h *HTTP) changeQueue(ctx context.Context, in *queueInput, body *wire.QueueChange) (*queueOutput, error) {
	if err := machine.CheckQueueName(in.Name); err != nil {
		return nil, err
	}
	q, err := h.engine.ChangeQueue(ctx, in.Name, body.Apply)
	return h.counted(ctx, q, err)
}

func (h *HTTP) pauseQueue(ctx context.Context, in *queueInput, _ *emptyBody) (*queueOutput, error) {
	q, err := h.engine.Pause(ctx, in.Name)
	return h.counted(ctx, q, err)
}

func (h *HTTP) resumeQueue(ctx context.Context, in *queueInput, _ *emptyBody) (*queueOutput, error) {
	q, err := h.engine.Resume(ctx, in.Name)
	return h.counted(ctx, q, err)
}

func (h *HTTP) pools(ctx context.Context, _ *none, _ *none) (*poolsOutput, error) {
	pools, err := h.engine.Pools(ctx)
	if err != nil {
		return nil, err
	}
	out := &poolsOutput{wire.Pools{Pools: make([]wire.Pool, len(pools))}}
	for i, p := range pools {
		out.Body.Pools[i] = wire.PoolOf(p)
	}
	return out, nil
}

func (h *HTTP) setPool(ctx context.Context, in *poolInput, body *wire.PoolChange) (*poolOutput, error) {
	if body.Capacity == nil { // none would stop every queue of the pool
		var p parameters
		p.fault("capacity", "is required")
		return nil, p.err()
	}
	if err := h.engine.PutPool(ctx, gq.Pool{Name: in.Name, Capacity: *body.Capacity}); err != nil {
		return nil, err
	}
	pools, err := h.engine.Pools(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range pools {
		if p.Name == in.Name {
			return &poolOutput{wire.PoolOf(p)}, nil
		}
	}
	return nil, gq.ErrNotFound
}

func (h *HTTP) registerSchedules() {
	register(h, route{
		method: http.MethodGet, path: "/v1/schedules", id: "list-schedules", tag: "schedules", summary: "List schedules",
	}, h.schedules)
	register(h, route{
		method: http.MethodGet, path: "/v1/schedules/{name}", id: "get-schedule", tag: "schedules", summary: "Read a schedule",
	}, h.schedule)
	register(h, route{
		method: http.MethodPut, path: "/v1/schedules/{name}", id: "set-schedule", tag: "schedules", large: true, summary: "Make or replace a schedule",
	}, h.setSchedule)
	register(h, route{
		method: http.MethodDelete, path: "/v1/schedules/{name}", id: "delete-schedule", tag: "schedules", status: http.StatusNoContent,
		summary: "Delete a schedule", description: "Jobs that it has submitted stay.",
	}, h.deleteSchedule)
	register(h, route{
		method: http.MethodPost, path: "/v1/schedules/{name}/pause", id: "pause-schedule", tag: "schedules", optional: true, summary: "Pause a schedule",
	}, h.pauseSchedule)
	register(h, route{
		method: http.MethodPost, path: "/v1/schedules/{name}/resume", id: "resume-schedule", tag: "schedules", optional: true,
		summary: "Resume a schedule", description: "Slots that passed meanwhile are not made up for.",
	}, h.resumeSchedule)
}

func (h *HTTP) schedules(ctx context.Context, _ *none, _ *none) (*schedulesOutput, error) {
	all, err := h.engine.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	out := &schedulesOutput{wire.Schedules{Schedules: make([]wire.Schedule, len(all))}}
	for i := range all {
		out.Body.Schedules[i] = wire.ScheduleOf(&all[i])
	}
	return out, nil
}

func scheduled(s gq.Schedule, err error) (*scheduleOutput, error) {
	if err != nil {
		return nil, wire.ScheduleFaults(err)
	}
	return &scheduleOutput{wire.ScheduleOf(&s)}, nil
}

func (h *HTTP) schedule(ctx context.Context, in *scheduleInput, _ *none) (*scheduleOutput, error) {
	return scheduled(h.engine.Schedule(ctx, in.Name))
}

func (h *HTTP) setSchedule(ctx context.Context, in *scheduleInput, body *wire.ScheduleDraft) (*scheduleOutput, error) {
	s, err := body.Domain(in.Name, h.queuePolicy(ctx))
	if err != nil {
		return nil, err
	}
	return scheduled(h.engine.PutSchedule(ctx, s))
}

func (h *HTTP) deleteSchedule(ctx context.Context, in *scheduleInput, _ *none) (*noOutput, error) {
	if err := h.engine.DeleteSchedule(ctx, in.Name); err != nil {
		return nil, err
	}
	return &noOutput{}, nil
}

func (h *HTTP) pauseSchedule(ctx context.Context, in *scheduleInput, _ *emptyBody) (*scheduleOutput, error) {
	return scheduled(h.engine.PauseSchedule(ctx, in.Name))
}

func (h *HTTP) resumeSchedule(ctx context.Context, in *scheduleInput, _ *emptyBody) (*scheduleOutput, error) {
	return scheduled(h.engine.ResumeSchedule(ctx, in.Name))
}
