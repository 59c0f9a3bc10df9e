package native

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/feed"
)

// Bytes that are not a message are the client's fault, on streams as in unary calls.
func TestUndecodableSubscription(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{Feed: feed.NewFeed(feed.New(newEngine(t)), &access.Guard{})}, nil)
	for _, body := range [][]byte{{0xff, 0xff, 0xff}, []byte("\x12\x03\xff\xfe\xfd")} {
		s, err := h.conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, pb.EventsService_Subscribe_FullMethodName, grpc.ForceCodecV2(raw{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendMsg(body); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&pb.SubscribeResponse{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%x: %v", body, err)
		}
	}
}

// A Work stream whose token is revoked ends with the reason, even while idle.
func TestWorkEndsWithItsToken(t *testing.T) {
	f := newFortress(t)
	token := f.rated(0, access.Work, "*")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	s, err := pb.NewWorkersServiceClient(f.conn).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.WorkRequest{Id: 1, Message: &pb.WorkRequest_Hello{Hello: &pb.Hello{Worker: "w"}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || m.GetWelcome() == nil {
		t.Fatalf("%v, %v", m, err)
	}
	if _, err := f.ring.Revoke(t.Context(), strings.Split(token, "_")[1]); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("after its token was revoked: %v, %v", m, err)
	}
}

// A probe that gave up says nothing about the server and is not logged as an error.
func TestAProbeThatGaveUpIsNoError(t *testing.T) {
	for _, gaveUp := range []bool{true, false} {
		s := newSiteOver(t, &broken{err: context.Canceled}, HTTPOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		if gaveUp {
			cancel()
		}
		w := httptest.NewRecorder()
		s.face.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", http.NoBody))
		cancel()
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if logged := strings.Contains(s.log.String(), "not ready"); logged == gaveUp {
			t.Errorf("gave up %t: the log says %q", gaveUp, s.log.String())
		}
	}
}
