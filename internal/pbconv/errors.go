package pbconv

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
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
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

// Size limits of errors, which travel in the small headers of a call.
const (
	maxText       = 4 << 10
	maxFaultsText = 2 << 10
)

// ProtoProblem encodes the error of one batch item.
func ProtoProblem(err error, request string) *pb.Problem {
	p := &pb.Problem{Code: errs.CodeOf(err), Kind: kindOf(err).String(), Message: shortened(err.Error()), RequestId: request}
	switch {
	case wire.IsInternal(err):
		p.Message = "internal"
		if request != "" {
			p.Message = "internal; the server's log has more under request " + request
		}
	case errs.KindOf(err) == gq.KindInternal: // the context ended
		p.Code = gq.ErrTimeout.Code
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

// kindOf returns the kind of an error. The end of a context is a timeout.
func kindOf(err error) gq.ErrorKind {
	if kind := errs.KindOf(err); kind != gq.KindInternal || wire.IsInternal(err) {
		return kind
	}
	return gq.KindTimeout
}

func shortened(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}

// ErrorFromProblem decodes an error.
func ErrorFromProblem(p *pb.Problem) error {
	return wire.NewRemoteError(p.GetRequestId(), p.GetMessage(), causeOf(p))
}

func causeOf(p *pb.Problem) error {
	if len(p.GetFaults()) > 0 {
		e := &gq.InvalidError{Faults: make([]gq.Fault, len(p.GetFaults()))}
		for i, f := range p.GetFaults() {
			e.Faults[i] = gq.Fault{Field: f.GetField(), Problem: f.GetProblem()}
		}
		return e
	}
	if p.GetCode() == gq.ErrNotUnique.Code {
		return uniqueCause(p)
	}
	return wire.CauseOf(p.GetCode(), p.GetKind())
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
	code := GRPCCode(kindOf(err))
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
			cause := causeOf(p)
			if s.Code() == codes.Canceled {
				cause = context.Canceled
			}
			return wire.NewRemoteError(p.GetRequestId(), s.Message(), cause)
		}
	}
	return wire.NewRemoteError("", bareText(s), bareCause(s))
}

// PurgedFromStatus returns how many jobs a PurgeWhere removed that failed halfway.
func PurgedFromStatus(err error) int64 {
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*pb.PurgeReport); ok {
			return r.GetPurged()
		}
	}
	return 0
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
		return wire.ErrUnreachable
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
		return fmt.Sprintf("%v: %s%s", wire.ErrUnreachable, s.Message(), tlsHint(s.Message()))
	case codes.Unimplemented:
		return "the server does not know this call: " + s.Message()
	default:
		return s.Message()
	}
}

// tlsHints are what a client can do about the ways in which a connection with TLS fails.
var tlsHints = []struct{ text, hint string }{
	{"first record does not look like a TLS handshake", "the server does not speak TLS: use gq://, and unset GQ_TLS, GQ_TLS_CA and GQ_TLS_CERT"},
	{"tls: certificate required", "the server wants the certificate of a client: set GQ_TLS_CERT=FILE and GQ_TLS_KEY=FILE"},
	{"remote error: tls: bad certificate", "the server does not accept the certificate in GQ_TLS_CERT"},
	{"certificate signed by unknown authority", "set GQ_TLS_CA=FILE to the authority of the server's certificate"},
}

// tlsHint says what the end of a connection can mean.
func tlsHint(message string) string {
	_, how, ok := strings.Cut(message, "error reading server preface: ")
	if ok && (strings.Contains(how, "EOF") || strings.Contains(how, "connection reset")) {
		return "; the server may speak TLS: use gqs://, or set GQ_TLS=1 or GQ_TLS_CA=FILE"
	}
	for _, h := range tlsHints {
		if strings.Contains(message, h.text) {
			return "; " + h.hint
		}
	}
	return ""
}
