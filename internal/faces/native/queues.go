package native

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
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
	emptyBody struct{}
)

func (h *HTTP) queueRoutes() []httpx.Route {
	configure := func(method, id string) httpx.Route {
		return httpx.Route{
			Method: method, Path: "/v1/queues/{name}", ID: id, Tag: "queues", Summary: "Configure a queue",
			Description: "What is absent stays as it is. A queue that does not exist begins with the defaults. Jobs that exist keep their policy.",
		}
	}
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/queues", ID: "list-queues", Tag: "queues", Summary: "List queues",
			Description: "The queues that were configured or ever had a job, by name and with their numbers, a page at a time.",
		}, h.queues),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/queues/{name}", ID: "get-queue", Tag: "queues", Summary: "Read a queue",
		}, h.queue),
		httpx.Handle(configure(http.MethodPatch, "change-queue"), h.changeQueue),
		httpx.Handle(configure(http.MethodPut, "set-queue"), h.changeQueue),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/queues/{name}/declare", ID: "declare-queue", Tag: "queues", Optional: true, Summary: "Declare a queue at program start",
			Description: "What is absent is the default. What somebody has changed since the last declaration, such as a pause or a limit, stays as it is. A declaration that contradicts that or another program is refused.",
		}, h.declareQueue),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/queues/{name}/pause", ID: "pause-queue", Tag: "queues", Optional: true, Summary: "Pause a queue",
			Description: "Nothing is claimed from it any more; submissions go on. A queue that does not exist begins with the defaults, so that it can be paused before its first job.",
		}, h.pauseQueue),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/queues/{name}/resume", ID: "resume-queue", Tag: "queues", Optional: true, Summary: "Resume a queue",
			Description: "One that does not exist is not found.",
		}, h.resumeQueue),
		httpx.Handle(httpx.Route{
			Method: http.MethodDelete, Path: "/v1/queues/{name}", ID: "delete-queue", Tag: "queues", Status: http.StatusNoContent, Summary: "Delete a queue",
			Description: "Its configuration and declaration. It is refused while the queue has live jobs. Finished jobs stay until their retention is over.",
		}, h.deleteQueue),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/queues/{name}/keys", ID: "list-queue-keys", Tag: "queues", Summary: "List limits of single keys",
			Description: "The limit keys of a queue that have limits of their own, by name, a page at a time.",
		}, h.queueKeys),
		httpx.Handle(httpx.Route{
			Method: http.MethodPut, Path: "/v1/queues/{name}/keys/{key}", ID: "set-queue-key", Tag: "queues", Summary: "Set limits of one key",
			Description: "They replace those that the key had, and count from the next claim on. A queue that does not exist begins with the defaults.",
		}, h.setQueueKey),
		httpx.Handle(httpx.Route{
			Method: http.MethodDelete, Path: "/v1/queues/{name}/keys/{key}", ID: "unset-queue-key", Tag: "queues", Status: http.StatusNoContent, Summary: "Unset limits of one key",
			Description: "The key has the limits of its queue again.",
		}, h.unsetQueueKey),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/queues/{name}/history", ID: "queue-history", Tag: "queues", Summary: "Read the history of a queue",
			Description: historyText,
		}, h.queueHistory),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/history", ID: "history", Tag: "queues", Summary: "Read the history of several queues",
			Description: "The named queues together, or all. " + historyText,
		}, h.history),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/activity", ID: "activity", Tag: "queues", Summary: "Read the last hour of each queue",
			Description: "What happened in each queue in the last 60 minutes, by name. Without names it lists the queues where anything happened, and may be some seconds old.",
		}, h.activity),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/pools", ID: "list-pools", Tag: "queues", Summary: "List capacity pools",
		}, h.pools),
		httpx.Handle(httpx.Route{
			Method: http.MethodPut, Path: "/v1/pools/{name}", ID: "set-pool", Tag: "queues", Summary: "Make or change a capacity pool",
		}, h.setPool),
	}
}

func (h *HTTP) queues(ctx context.Context, in *queuesInput, _ *httpx.None) (*httpx.Answer[wire.Queues], error) {
	var p parameters
	limit := cmp.Or(p.count("limit", in.Limit, maxPage), maxPage)
	checkQueueCursor(&p, in.Cursor)
	if err := p.err(); err != nil {
		return nil, err
	}
	queues, next, err := queuePage(ctx, h.engine, in.Cursor, limit)
	if err != nil || len(queues) == 0 {
		return httpx.OK(wire.QueuesOf(nil, nil)), err
	}
	names := make([]string, len(queues))
	for i := range queues {
		names[i] = queues[i].Name
	}
	counts, err := h.engine.Counts(ctx, names...)
	if err != nil {
		return nil, err
	}
	out := httpx.OK(wire.QueuesOf(queues, counts))
	out.Body.NextCursor = next
	return out, nil
}

// The cursor of a queue list is the last name of the previous page.
func checkQueueCursor(p *parameters, cursor string) {
	if cursor != "" && machine.CheckQueueName(cursor) != nil {
		p.fault("cursor", "%.64q was not the next_cursor of a page of queues", cursor)
	}
}

// queuePage returns a page of queues and the cursor of the next one. A limit of 0 returns
// all queues.
func queuePage(ctx context.Context, e engine.API, cursor string, limit int) (page []gq.Queue, next string, err error) {
	if limit == 0 {
		page, err = e.QueuesAfter(ctx, cursor, 0)
		return page, "", err
	}
	page, err = e.QueuesAfter(ctx, cursor, limit+1) // one extra tells whether there is a next page
	if err == nil && len(page) > limit {
		page = page[:limit]
		next = page[limit-1].Name
	}
	return page, next, err
}

func (h *HTTP) queue(ctx context.Context, in *queueInput, _ *httpx.None) (*httpx.Answer[wire.Queue], error) {
	if err := machine.CheckQueueName(in.Name); err != nil {
		return nil, err
	}
	q, err := h.engine.Queue(ctx, in.Name)
	return h.counted(ctx, q, err)
}

func (h *HTTP) deleteQueue(ctx context.Context, in *queueInput, _ *httpx.None) (*httpx.Answer[httpx.None], error) {
	return nil, h.engine.DeleteQueue(ctx, in.Name)
}

func (s *queuesServer) DeleteQueue(ctx context.Context, r *pb.DeleteQueueRequest) (*pb.DeleteQueueResponse, error) {
	if err := s.engine.DeleteQueue(ctx, r.GetName()); err != nil {
		return nil, err
	}
	return &pb.DeleteQueueResponse{}, nil
}

func (h *HTTP) declareQueue(ctx context.Context, in *queueInput, body *wire.QueueChange) (*httpx.Answer[wire.Queue], error) {
	q := gq.Queue{Name: in.Name}
	if body.Policy != nil { // without one it gets the server's
		q.Policy = h.options.DefaultPreset.Policy()
	}
	body.Apply(&q)
	out, err := h.engine.DeclareQueue(ctx, q)
	return h.counted(ctx, out, err)
}

func (h *HTTP) counted(ctx context.Context, q gq.Queue, err error) (*httpx.Answer[wire.Queue], error) {
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
	return httpx.OK(wire.QueueOf(&q, &count)), nil
}

func (h *HTTP) changeQueue(ctx context.Context, in *queueInput, body *wire.QueueChange) (*httpx.Answer[wire.Queue], error) {
	if err := machine.CheckQueueName(in.Name); err != nil {
		return nil, err
	}
	q, err := h.engine.ChangeQueue(ctx, in.Name, body.Apply)
	return h.counted(ctx, q, err)
}

func (h *HTTP) pauseQueue(ctx context.Context, in *queueInput, _ *emptyBody) (*httpx.Answer[wire.Queue], error) {
	q, err := h.engine.Pause(ctx, in.Name)
	return h.counted(ctx, q, err)
}

func (h *HTTP) resumeQueue(ctx context.Context, in *queueInput, _ *emptyBody) (*httpx.Answer[wire.Queue], error) {
	q, err := h.engine.Resume(ctx, in.Name)
	return h.counted(ctx, q, err)
}

func (h *HTTP) pools(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[wire.Pools], error) {
	pools, err := h.engine.Pools(ctx)
	if err != nil {
		return nil, err
	}
	out := httpx.OK(wire.Pools{Pools: make([]wire.Pool, len(pools))})
	for i, p := range pools {
		out.Body.Pools[i] = wire.PoolOf(p)
	}
	return out, nil
}

func (h *HTTP) setPool(ctx context.Context, in *poolInput, body *wire.PoolChange) (*httpx.Answer[wire.Pool], error) {
	if body.Capacity == nil { // a missing capacity, read as 0, would stop every queue of the pool
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
			return httpx.OK(wire.PoolOf(p)), nil
		}
	}
	return nil, gq.ErrNotFound
}

type queuesServer struct {
	pb.UnimplementedQueuesServiceServer
	*GRPC
}

func answerQueue(q gq.Queue, err error) (*pb.Queue, error) {
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoQueue(&q), nil
}

func (s *queuesServer) GetQueue(ctx context.Context, r *pb.GetQueueRequest) (*pb.Queue, error) {
	return answerQueue(s.engine.Queue(ctx, r.GetName()))
}

func (s *queuesServer) ListQueues(ctx context.Context, r *pb.ListQueuesRequest) (*pb.ListQueuesResponse, error) {
	var p parameters
	if r.GetLimit() < 0 || r.GetLimit() > maxPage {
		p.fault("limit", "%d is not between 0, which is all queues, and %d", r.GetLimit(), maxPage)
	}
	checkQueueCursor(&p, r.GetCursor())
	if err := p.err(); err != nil {
		return nil, err
	}
	queues, next, err := queuePage(ctx, s.engine, r.GetCursor(), int(r.GetLimit()))
	if err != nil {
		return nil, err
	}
	answer := &pb.ListQueuesResponse{Queues: make([]*pb.Queue, len(queues)), NextCursor: next}
	for i := range queues {
		answer.Queues[i] = pbconv.ProtoQueue(&queues[i])
	}
	return answer, nil
}

func (s *queuesServer) SetQueue(ctx context.Context, r *pb.SetQueueRequest) (*pb.Queue, error) {
	change, err := pbconv.QueueChangeFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("configure queue %.80q: %w", r.GetName(), err)
	}
	if r.GetDeclare() {
		q := gq.Queue{Name: r.GetName()}
		if r.GetPolicy() != nil { // without one it gets the server's
			q.Policy = s.options.DefaultPreset.Policy()
		}
		change(&q)
		return answerQueue(s.engine.DeclareQueue(ctx, q))
	}
	return answerQueue(s.engine.ChangeQueue(ctx, r.GetName(), change))
}

func (s *queuesServer) PauseQueue(ctx context.Context, r *pb.PauseQueueRequest) (*pb.Queue, error) {
	return answerQueue(s.engine.Pause(ctx, r.GetName()))
}

func (s *queuesServer) ResumeQueue(ctx context.Context, r *pb.ResumeQueueRequest) (*pb.Queue, error) {
	return answerQueue(s.engine.Resume(ctx, r.GetName()))
}

func (s *queuesServer) ListPools(ctx context.Context, _ *pb.ListPoolsRequest) (*pb.ListPoolsResponse, error) {
	pools, err := s.engine.Pools(ctx)
	if err != nil {
		return nil, err
	}
	answer := &pb.ListPoolsResponse{Pools: make([]*pb.Pool, len(pools))}
	for i := range pools {
		answer.Pools[i] = pbconv.ProtoPool(&pools[i])
	}
	return answer, nil
}

func (s *queuesServer) SetPool(ctx context.Context, r *pb.SetPoolRequest) (*pb.Pool, error) {
	p := gq.Pool{Name: r.GetName(), Capacity: r.GetCapacity()}
	if err := s.engine.PutPool(ctx, p); err != nil {
		return nil, err
	}
	return pbconv.ProtoPool(&p), nil
}
