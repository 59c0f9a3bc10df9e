package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
)

// grpcCodes maps error kinds to gRPC codes.
var grpcCodes = map[gq.ErrorKind]codes.Code{
	gq.KindInternal:    codes.Internal,
	gq.KindInvalid:     codes.InvalidArgument,
	gq.KindNotFound:    codes.NotFound,
	gq.KindConflict:    codes.FailedPrecondition,
	gq.KindStaleLease:  codes.Aborted,
	gq.KindDuplicate:   codes.AlreadyExists,
	gq.KindExhausted:   codes.ResourceExhausted,
	gq.KindUnavailable: codes.Unavailable,
	gq.KindTimeout:     codes.DeadlineExceeded,
	gq.KindDenied:      codes.PermissionDenied,

	gq.KindUnauthenticated: codes.Unauthenticated,
}

// GRPCCode returns the gRPC code of an error kind.
func GRPCCode(k gq.ErrorKind) codes.Code {
	if c, ok := grpcCodes[k]; ok {
		return c
	}
	return codes.Internal
}

// sentinels maps error codes to the errors of package gq.
var sentinels = func() map[string]*gq.Error {
	all := make(map[string]*gq.Error)
	for _, e := range []*gq.Error{
		gq.ErrInvalid, gq.ErrNotFound, gq.ErrIllegalMove, gq.ErrConflict, gq.ErrStaleLease, gq.ErrDuplicateID, gq.ErrKeyReused, gq.ErrNotUnique,
		gq.ErrQueueFull, gq.ErrTooMany, gq.ErrNoCapacity, gq.ErrDiskFull, gq.ErrStoreFailed, gq.ErrUnavailable, gq.ErrClosed, gq.ErrInUse,
		gq.ErrNotEmpty, gq.ErrQueueInUse, gq.ErrUnfinished, gq.ErrFormat, gq.ErrCorrupt, gq.ErrTimeout, gq.ErrGone,
		gq.ErrDenied, gq.ErrUnauthenticated, gq.ErrRateLimited, gq.ErrOverlap,
	} {
		all[e.Code] = e
	}
	return all
}()

var kindsByName = func() map[string]gq.ErrorKind {
	all := make(map[string]gq.ErrorKind)
	for _, k := range enum.All[gq.ErrorKind]() {
		all[k.String()] = k
	}
	return all
}()

// RemoteError is an error reported by another process. It has the same text, and wraps
// the same sentinel or [gq.InvalidError].
type RemoteError struct {
	Request string // id of the call in the other process's log; may be empty

	text  string
	cause error
}

func (e *RemoteError) Error() string { return e.text }

// Unwrap returns the sentinel or [gq.InvalidError].
func (e *RemoteError) Unwrap() error { return e.cause }

// ErrUnreachable means that no server answered, or that the connection broke before an
// answer arrived. The request may have been executed. Package gq has no such error.
var ErrUnreachable error = unreachableError{}

type unreachableError struct{}

func (unreachableError) Error() string { return "no server can be reached" }
func (unreachableError) Unwrap() error { return unreachable }

var unreachable = &gq.Error{Kind: gq.KindUnavailable, Code: "unreachable"}

// IsInternal reports whether the text of an error may only go to the log.
func IsInternal(err error) bool {
	return err != nil && errs.KindOf(err) == gq.KindInternal && !isContext(err)
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Size limits of errors, which travel in the small headers of a call.
const (
	maxText       = 4 << 10
	maxFaultsText = 2 << 10
)

// ProtoProblem encodes the error of one batch item.
func ProtoProblem(err error, request string) *pb.Problem {
	p := &pb.Problem{Code: errs.CodeOf(err), Kind: errs.KindOf(err).String(), Message: shortened(err.Error()), RequestId: request}
	switch {
	case IsInternal(err):
		p.Message = "internal"
		if request != "" {
			p.Message = "internal; the server's log has more under request " + request
		}
	case errs.KindOf(err) == gq.KindInternal: // the context ended
		p.Kind, p.Code = gq.KindTimeout.String(), gq.ErrTimeout.Code
	}
	if u, ok := errors.AsType[*gq.UniqueError](err); ok {
		p.JobId, p.JobStatus = protoID(u.Job), pb.Status(u.Status)
	}
	size := 0
	for _, f := range errs.FaultsOf(err) {
		if size += len(f.Field) + len(f.Problem); size > maxFaultsText && len(p.Faults) > 0 {
			break // the message still lists them
		}
		p.Faults = append(p.Faults, &pb.Fault{Field: Prose(f.Field), Problem: shortened(f.Problem)})
	}
	return p
}

func shortened(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}

// ErrorFromProblem decodes an error.
func ErrorFromProblem(p *pb.Problem) error {
	return &RemoteError{Request: p.GetRequestId(), text: p.GetMessage(), cause: causeOf(p)}
}

func causeOf(p *pb.Problem) error {
	if len(p.GetFaults()) > 0 {
		e := &gq.InvalidError{Faults: make([]gq.Fault, len(p.GetFaults()))}
		for i, f := range p.GetFaults() {
			e.Faults[i] = gq.Fault{Field: f.GetField(), Problem: f.GetProblem()}
		}
		return e
	}
	switch e, known := sentinels[p.GetCode()]; {
	case known && e == gq.ErrNotUnique:
		return uniqueCause(p)
	case known:
		return e
	case p.GetCode() == unreachable.Code:
		return ErrUnreachable
	}
	kind := kindsByName[p.GetKind()] // a code unknown to us, from a newer server, still has a kind
	if kind == gq.KindInternal {
		return nil
	}
	return &gq.Error{Kind: kind, Code: p.GetCode()}
}

// StatusOf converts an error to a gRPC status.
func StatusOf(err error, request string) *status.Status {
	if err == nil {
		return nil
	}
	if errs.KindOf(err) == gq.KindInternal {
		if s, ok := status.FromError(err); ok { // created by an interceptor
			return s
		}
	}
	p := ProtoProblem(err, request)
	code := GRPCCode(kindsByName[p.GetKind()])
	if errs.KindOf(err) == gq.KindInternal && errors.Is(err, context.Canceled) {
		code = codes.Canceled
	}
	s := status.New(code, p.GetMessage())
	p.Message = ""
	if detailed, err := s.WithDetails(p); err == nil {
		s = detailed
	}
	return s
}

// ErrorFromStatus converts a gRPC status to an error, nil for success.
func ErrorFromStatus(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, d := range s.Details() {
		if p, ok := d.(*pb.Problem); ok {
			e := &RemoteError{Request: p.GetRequestId(), text: s.Message(), cause: causeOf(p)}
			if s.Code() == codes.Canceled {
				e.cause = context.Canceled
			}
			return e
		}
	}
	return &RemoteError{text: bareText(s), cause: bareCause(s)}
}

// CancelReportFromStatus returns the report of a CancelWhere that failed halfway.
func CancelReportFromStatus(err error) gq.CancelReport {
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*pb.CancelReport); ok {
			return CancelReportFromProto(r)
		}
	}
	return gq.CancelReport{}
}

// bareCause returns the error for a status that gRPC itself created.
func bareCause(s *status.Status) error {
	switch s.Code() {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return errors.Join(gq.ErrTimeout, context.DeadlineExceeded)
	case codes.Unavailable:
		return ErrUnreachable
	case codes.ResourceExhausted:
		if strings.Contains(s.Message(), "larger than max") {
			return &gq.InvalidError{Faults: []gq.Fault{{Field: "request", Problem: s.Message()}}}
		}
		return gq.ErrTooMany
	case codes.InvalidArgument, codes.OutOfRange:
		return gq.ErrInvalid
	case codes.NotFound:
		return gq.ErrNotFound
	case codes.AlreadyExists:
		return gq.ErrDuplicateID
	case codes.FailedPrecondition, codes.Aborted:
		return gq.ErrConflict
	case codes.PermissionDenied:
		return gq.ErrDenied
	case codes.Unauthenticated:
		return gq.ErrUnauthenticated
	default: // OK, Unknown, Unimplemented, Internal, DataLoss
		return nil
	}
}

func bareText(s *status.Status) string {
	switch s.Code() {
	case codes.Unavailable:
		return fmt.Sprintf("%v: %s", ErrUnreachable, s.Message())
	case codes.Unimplemented:
		return "the server does not know this call: " + s.Message()
	default:
		return s.Message()
	}
}

// RequestOf returns the id of a failed call in the other process's log, or "".
func RequestOf(err error) string {
	if e, ok := errors.AsType[*RemoteError](err); ok {
		return e.Request
	}
	return ""
}
