package pbconv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
)

func TestGRPCCodesAreTotal(t *testing.T) {
	seen := make(map[codes.Code]gq.ErrorKind)
	for _, k := range enum.All[gq.ErrorKind]() {
		code, ok := grpcCodes[k]
		if !ok {
			t.Errorf("kind %s has no code", k)
		}
		if other, taken := seen[code]; taken {
			t.Errorf("%s stands for %s and %s", code, other, k)
		}
		seen[code] = k
		if code == codes.OK || code == codes.Unknown || code == codes.Canceled {
			t.Errorf("kind %s is told as %s", k, code)
		}
	}
	if GRPCCode(gq.ErrorKind(200)) != codes.Internal {
		t.Error("an unknown kind is not internal")
	}
}

// An error arrives with the same identity and text.
func TestErrorsArrive(t *testing.T) {
	for code, sentinel := range wire.Sentinels() {
		err := fmt.Errorf("complete under lease %q: %w", "l", sentinel)
		for how, got := range map[string]error{
			"status":  ErrorFromStatus(StatusOf(err, "r1").Err()),
			"problem": ErrorFromProblem(ProtoProblem(err, "r1")),
		} {
			if !errors.Is(got, sentinel) || errs.KindOf(got) != sentinel.Kind || errs.CodeOf(got) != code {
				t.Errorf("%s: %s became %v of kind %s", how, code, got, errs.KindOf(got))
			}
			if sentinel.Kind != gq.KindInternal && got.Error() != err.Error() {
				t.Errorf("%s: %q became %q", how, err, got)
			}
			if wire.RequestOf(got) != "r1" {
				t.Errorf("%s: %s lost its request id", how, code)
			}
		}
		if got := StatusOf(err, "").Code(); got != GRPCCode(sentinel.Kind) {
			t.Errorf("%s is told as %s", code, got)
		}
	}
}

func TestFaultsArrive(t *testing.T) {
	err := fmt.Errorf("submit: %w", &gq.InvalidError{Faults: []gq.Fault{{Field: "type", Problem: "is required"}, {Field: "queue", Problem: "no"}}})
	for _, got := range []error{ErrorFromStatus(StatusOf(err, "").Err()), ErrorFromProblem(ProtoProblem(err, ""))} {
		if got.Error() != err.Error() || !errors.Is(got, gq.ErrInvalid) || fmt.Sprint(errs.FaultsOf(got)) != fmt.Sprint(errs.FaultsOf(err)) {
			t.Errorf("%v became %v with %v", err, got, errs.FaultsOf(got))
		}
	}
}

// Headers are small: a long error is cut and keeps its kind.
func TestLargeErrorsAreCut(t *testing.T) {
	var faults []gq.Fault
	for i := range 10_000 {
		faults = append(faults, gq.Fault{Field: fmt.Sprintf("jobs[%d].type", i), Problem: "is required"})
	}
	s := StatusOf(&gq.InvalidError{Faults: faults}, "r")
	if n := proto.Size(s.Proto()); n > 8<<10 {
		t.Errorf("the status has %d bytes", n)
	}
	got := ErrorFromStatus(s.Err())
	if !errors.Is(got, gq.ErrInvalid) || len(errs.FaultsOf(got)) < 10 {
		t.Errorf("%d faults are left of %v", len(errs.FaultsOf(got)), got)
	}
	one := StatusOf(&gq.InvalidError{Faults: []gq.Fault{{Field: strings.Repeat("f", 100_000), Problem: strings.Repeat("é", 100_000)}}}, "r")
	if n := proto.Size(one.Proto()); n > 200_000 { // sent by somebody else, but it must not be lost
		t.Errorf("the status has %d bytes", n)
	}
}

func TestInternalErrorsStayInTheLog(t *testing.T) {
	secret := errors.New("password is hunter2")
	for _, err := range []error{secret, fmt.Errorf("read: %w: %w", gq.ErrCorrupt, secret)} {
		if !wire.IsInternal(err) {
			t.Errorf("%v is not internal", err)
		}
		for _, got := range []error{ErrorFromStatus(StatusOf(err, "r7").Err()), ErrorFromProblem(ProtoProblem(err, "r7"))} {
			if strings.Contains(got.Error(), "hunter2") || !strings.Contains(got.Error(), "internal") || !strings.Contains(got.Error(), "r7") {
				t.Errorf("told as %q", got)
			}
			if errs.KindOf(got) != gq.KindInternal {
				t.Errorf("%v is of kind %s", got, errs.KindOf(got))
			}
		}
		if s := StatusOf(err, ""); s.Code() != codes.Internal || s.Message() != "internal" {
			t.Errorf("told as %v", s)
		}
	}
}

func TestContextErrors(t *testing.T) {
	canceled := fmt.Errorf("get: %w", context.Canceled)
	if s := StatusOf(canceled, ""); s.Code() != codes.Canceled {
		t.Errorf("told as %v", s)
	} else if got := ErrorFromStatus(s.Err()); !errors.Is(got, context.Canceled) || got.Error() != canceled.Error() {
		t.Errorf("became %v", got)
	}
	late := fmt.Errorf("get: %w", context.DeadlineExceeded)
	if s := StatusOf(late, ""); s.Code() != codes.DeadlineExceeded {
		t.Errorf("told as %v", s)
	} else if got := ErrorFromStatus(s.Err()); !errors.Is(got, gq.ErrTimeout) {
		t.Errorf("became %v", got)
	}
	if wire.IsInternal(canceled) || wire.IsInternal(late) || wire.IsInternal(nil) {
		t.Error("the end of a context is not a defect")
	}
}

// Statuses that gRPC itself or foreign servers create have a kind too.
func TestBareStatuses(t *testing.T) {
	for code, kind := range map[codes.Code]gq.ErrorKind{
		codes.Canceled: gq.KindInternal, codes.Unknown: gq.KindInternal, codes.InvalidArgument: gq.KindInvalid,
		codes.DeadlineExceeded: gq.KindTimeout, codes.NotFound: gq.KindNotFound, codes.AlreadyExists: gq.KindDuplicate,
		codes.PermissionDenied: gq.KindDenied, codes.ResourceExhausted: gq.KindExhausted, codes.FailedPrecondition: gq.KindConflict,
		codes.Aborted: gq.KindConflict, codes.OutOfRange: gq.KindInvalid, codes.Unimplemented: gq.KindInternal,
		codes.Internal: gq.KindInternal, codes.Unavailable: gq.KindUnavailable, codes.DataLoss: gq.KindInternal,
		codes.Unauthenticated: gq.KindUnauthenticated,
	} {
		got := ErrorFromStatus(status.Error(code, "why"))
		if errs.KindOf(got) != kind || !strings.Contains(got.Error(), "why") {
			t.Errorf("%s became %v of kind %s", code, got, errs.KindOf(got))
		}
	}
	if got := ErrorFromStatus(status.Error(codes.ResourceExhausted, "grpc: received message larger than max (9 vs. 4)")); errs.KindOf(got) != gq.KindInvalid {
		t.Errorf("a message that is too large became %v", got)
	}
	if got := ErrorFromStatus(status.Error(codes.Unavailable, "")); !errors.Is(got, wire.ErrUnreachable) || errs.CodeOf(got) != "unreachable" {
		t.Errorf("became %v", got)
	}
	for message, hint := range map[string]string{
		"error reading server preface: EOF": "set GQ_TLS=1", "connection error: desc = \"error reading server preface: read tcp: connection reset by peer\"": "set GQ_TLS=1",
		"error reading server preface: remote error: tls: certificate required":                                                        "set GQ_TLS_CERT=FILE and GQ_TLS_KEY=FILE",
		"error reading server preface: remote error: tls: bad certificate":                                                             "does not accept the certificate in GQ_TLS_CERT",
		"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate signed by unknown authority": "set GQ_TLS_CA=FILE",
		"transport: authentication handshake failed: tls: first record does not look like a TLS handshake":                             "does not speak TLS",
		"dial tcp: connection refused": "", "EOF": "",
	} {
		if got := ErrorFromStatus(status.Error(codes.Unavailable, message)).Error(); !strings.Contains(got, hint) || (hint == "") == strings.Contains(got, "TLS") {
			t.Errorf("%s became %v", message, got)
		}
	}
	if ErrorFromStatus(nil) != nil || StatusOf(nil, "") != nil {
		t.Error("no error became one")
	}
	plain := errors.New("plain")
	if got := ErrorFromStatus(plain); got != plain { //nolint:errorlint // it is this very one
		t.Errorf("became %v", got)
	}
	own := status.Error(codes.Unauthenticated, "who are you?")
	if s := StatusOf(own, "r"); s.Code() != codes.Unauthenticated || s.Message() != "who are you?" {
		t.Errorf("an interceptor's own status became %v", s)
	}
}

// A newer server may have unknown codes; their kind is known.
func TestUnknownCodes(t *testing.T) {
	got := ErrorFromProblem(&pb.Problem{Code: "quota_exceeded", Kind: "exhausted", Message: "too much"})
	if errs.KindOf(got) != gq.KindExhausted || errs.CodeOf(got) != "quota_exceeded" || got.Error() != "too much" {
		t.Errorf("became %v of kind %s, code %s", got, errs.KindOf(got), errs.CodeOf(got))
	}
	if got := ErrorFromProblem(&pb.Problem{Code: "?", Kind: "?"}); errs.KindOf(got) != gq.KindInternal {
		t.Errorf("became %v", got)
	}
}
