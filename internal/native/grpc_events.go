package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

type eventsServer struct {
	pb.UnimplementedEventsServiceServer
	*GRPC
}

// subscriptionOf reads what a subscriber asks for.
func subscriptionOf(r *pb.SubscribeRequest) (f feed.Filter, err error) {
	var p parameters
	if len(r.GetQueues()) > 1000 || len(r.GetTypes()) > 1000 {
		p.fault("queues", "more than 1000 queues or types")
		return f, p.err()
	}
	f.Queues = r.GetQueues()
	for i, q := range f.Queues {
		for _, fault := range errs.FaultsOf(machine.CheckQueueName(q)) {
			p.fault(fmt.Sprintf("queues[%d]", i), "%s", fault.Problem)
		}
	}
	for i, t := range r.GetTypes() {
		if event := gq.EventType(t); t < 0 || int(t) > 255 || !event.Valid() {
			p.fault(fmt.Sprintf("types[%d]", i), "%d is not an event type", t)
		} else {
			f.Types = append(f.Types, event)
		}
	}
	if id := r.GetJobId(); id != "" {
		f.Job = p.jobID(id)
	}
	return f, p.err()
}

func (s *eventsServer) Subscribe(r *pb.SubscribeRequest, stream grpc.ServerStreamingServer[pb.SubscribeResponse]) error {
	filter, err := subscriptionOf(r)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	sub, err := subscribe(stream.Context(), s.engine, s.options.Feed, r.After, filter)
	if err != nil {
		return err
	}
	defer sub.Close()
	ctx, cancel := s.whileServing(stream.Context())
	defer cancel()
	limits := s.options.Events.withDefaults()
	if err := stream.SendHeader(nil); err != nil { // the subscription stands
		return err
	}
	err = s.subscribe(ctx, sub, limits, stream)
	text := farewell(err, s.draining.Err() != nil, sub.After)
	switch {
	case stream.Context().Err() != nil:
		return stream.Context().Err()
	case errors.Is(err, errSlow):
		return status.Error(codes.ResourceExhausted, text)
	case err == nil:
		return status.Error(codes.Unavailable, text)
	default:
		return fmt.Errorf("%s: %w", text, err)
	}
}

func (s *eventsServer) ListEvents(ctx context.Context, r *pb.ListEventsRequest) (*pb.ListEventsResponse, error) {
	limit := r.GetLimit()
	if limit < 0 || limit > maxEvents {
		var p parameters
		p.fault("limit", "%d is not between 0 and %d", limit, maxEvents)
		return nil, fmt.Errorf("list events: %w", p.err())
	}
	if limit == 0 {
		limit = maxEvents
	}
	events, err := s.engine.Events(ctx, r.GetAfter(), int(limit))
	if err != nil {
		return nil, err
	}
	return &pb.ListEventsResponse{Events: wire.ProtoEvents(events)}, nil
}

// maxEvents is how many events one call reads.
const maxEvents = 1000

func (s *eventsServer) LastEvent(ctx context.Context, _ *pb.LastEventRequest) (*pb.LastEventResponse, error) {
	seq, err := s.engine.LastEvent(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.LastEventResponse{Seq: seq}, nil
}

// subscribe sends what comes. A send that is stuck cannot be broken off but by
// the end of the call, so it has a goroutine that can be left behind: it ends with
// the call.
func (s *eventsServer) subscribe(ctx context.Context, sub *feed.Subscription, l EventLimits, stream grpc.ServerStreamingServer[pb.SubscribeResponse]) error {
	sent := make(chan error, 1)
	timer := time.NewTimer(l.Stuck)
	defer timer.Stop()
	return sub.Run(ctx, l.Beat, func(b feed.Batch, upTo uint64) error {
		message := &pb.SubscribeResponse{Events: b.Messages(), Position: upTo}
		return l.timely(func() error {
			timer.Reset(l.Stuck)
			go func() { sent <- stream.Send(message) }()
			select {
			case err := <-sent:
				return err
			case <-timer.C:
				return errSlow
			}
		})
	})
}
