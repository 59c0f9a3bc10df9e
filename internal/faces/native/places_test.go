package native

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
)

// occupied is an engine with no place for another waiting call.
type occupied struct {
	engine.API
	places *access.Places
}

func (o occupied) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	if _, err := o.places.Take(ctx); err != nil {
		return nil, err
	}
	return o.API.Claim(ctx, r)
}

// A waiting claim for which there is no place is refused with the limit, over HTTP with the time
// to try again, and on a Work stream alone.
func TestClaimsWithoutAPlace(t *testing.T) {
	full := access.NewPlaces("waiting calls", 0, 0)
	s := newSiteOver(t, occupied{newEngine(t), full}, HTTPOptions{})
	answer := s.want(http.StatusTooManyRequests, "POST", "/v1/claim", `{"worker":"w","wait":"1s"}`)
	if answer.str("code") != "too_many" || !strings.Contains(answer.str("detail"), "0 waiting calls are open") || answer.header.Get("Retry-After") == "" {
		t.Errorf("HTTP answers %s %v", answer.text, answer.header)
	}
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API { return occupied{e, full} })
	_, err := h.workers.Claim(t.Context(), &pb.ClaimRequest{Worker: "w"})
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "0 waiting calls are open") {
		t.Errorf("gRPC answers %v", err)
	}
	b := h.open()
	b.credit(2, 1, time.Second)
	if r := b.receive(); r.GetId() != 2 || r.GetProblem().GetCode() != "too_many" || !strings.Contains(r.GetProblem().GetMessage(), "0 waiting calls are open") {
		t.Errorf("the stream answers %v", r)
	}
	b.send(&pb.WorkRequest{Id: 3, Message: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{}}})
	if r := b.receive(); r.GetId() != 3 || r.GetProblem().GetCode() == "too_many" {
		t.Errorf("the stream then answers %v", r)
	}
}

// Work streams have places from before their hello until they end.
func TestWorkStreamsTakePlaces(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{Streams: access.NewPlaces("Work streams", 1, 1)}, nil)
	first := h.open()
	_, err := h.dialWork().stream.Recv()
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "1 Work streams are open") {
		t.Errorf("the second stream ends with %v", err)
	}
	if err := first.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = first.stream.Recv()
	}
	h.open()
}
