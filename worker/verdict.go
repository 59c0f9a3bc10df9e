package worker

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
	"github.com/gopherqueue/gq/internal/errs"
)

// SnoozeError is a handler's verdict that the job should run later. It uses up
// no attempt.
type SnoozeError struct{ Delay time.Duration }

func (e *SnoozeError) Error() string { return fmt.Sprintf("snooze for %v", e.Delay) }

// Snooze gives the job back without fault; it will not be claimed before d has
// passed. A handler that snoozes for ever is stopped only by the lifetime of the
// job.
func Snooze(d time.Duration) error { return &SnoozeError{min(max(d, 0), gq.MaxDuration)} }

// CancelError is a handler's verdict that the job should end as cancelled.
type CancelError struct{ Reason string }

func (e *CancelError) Error() string { return "cancelled: " + e.Reason }

// Cancel ends the job as cancelled.
func Cancel(reason string) error { return &CancelError{reason} }

// isVerdict reports whether a handler said itself what is to happen.
func isVerdict(err error) bool {
	for _, is := range []func(error) bool{
		has[*gq.TemporaryError], has[*gq.PermanentError], has[*SnoozeError], has[*CancelError], has[*panicError],
	} {
		if is(err) {
			return true
		}
	}
	return false
}

func has[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// panicError is what a handler that did not return leaves behind.
type panicError struct {
	code  string
	value string
	stack []byte
}

func (e *panicError) Error() string { return e.value + "\n\n" + string(e.stack) }

func panicked(value any) *panicError {
	return &panicError{code: "panic", value: fmt.Sprintf("panic: %v", value), stack: trimStack(debug.Stack())}
}

// errExited stands for a handler that ended its goroutine.
var errExited = &panicError{code: "goexit", value: "the handler called runtime.Goexit"}

// trimStack drops what lies between the panic and us, since a failure keeps only
// the beginning.
func trimStack(stack []byte) []byte {
	if i := bytes.Index(stack, []byte("\npanic(")); i >= 0 {
		for range 3 { // the line before, the call and its position
			j := bytes.IndexByte(stack[i:], '\n')
			if j < 0 {
				return stack
			}
			i += j + 1
		}
		return stack[i:]
	}
	return stack
}

// judge turns what a handler returned, and why its context ended if it did, into
// what the queue is told.
func (w *Worker) judge(r *Run, e ended, err error) gq.Outcome {
	cause := e.cause
	o := gq.Outcome{Lease: r.ref, Verdict: gq.VerdictFail}
	switch {
	case errors.Is(cause, ErrExecutionTimeout):
		o.Failure = gq.Failure{Category: gq.CategoryTimeout, Code: "execution_timeout", Message: timeoutText(r, err)}
	case err == nil:
		o.Verdict, o.Result, o.Spawn = gq.VerdictComplete, e.result, e.children
		if len(o.Result) > gq.MaxPayloadBytes {
			o = failing(r, resultTooLarge(len(o.Result)))
		}
	case has[*panicError](err):
		p, _ := errors.AsType[*panicError](err)
		o.Failure = gq.Failure{Category: gq.CategorySystem, Code: p.code, Message: clip(p.Error())}
	case has[*SnoozeError](err):
		s, _ := errors.AsType[*SnoozeError](err)
		o.Verdict, o.Delay, o.Reason = gq.VerdictRelease, min(max(s.Delay, 0), gq.MaxDuration), "snoozed"
	case has[*CancelError](err):
		c, _ := errors.AsType[*CancelError](err)
		o.Failure = gq.Failure{Category: gq.CategoryCancelled, Code: "cancelled", Message: clip(c.Reason)}
	case errors.Is(cause, ErrCancelRequested):
		o.Failure = gq.Failure{Category: gq.CategoryCancelled, Code: "cancel_requested", Message: classify.Error(err).Message}
	case errors.Is(cause, ErrDraining) && !isVerdict(err):
		o.Verdict, o.Reason = gq.VerdictRelease, ErrDraining.Error()
	default:
		o.Failure = w.classify(err)
	}
	return o
}

func timeoutText(r *Run, err error) string {
	text := fmt.Sprintf("the handler ran longer than %v", r.policy.ExecutionTimeout)
	if err != nil {
		text += ": " + classify.Error(err).Message
	}
	return clip(text)
}

// classify judges an error as configured. A classifier that panics or has no
// answer is replaced for once.
func (w *Worker) classify(err error) (f gq.Failure) {
	defer func() {
		if p := recover(); p != nil || !f.Category.Valid() {
			f = classify.Error(err)
		}
	}()
	return w.config.Classify(err)
}

func failing(r *Run, f gq.Failure) gq.Outcome {
	return gq.Outcome{Lease: r.ref, Verdict: gq.VerdictFail, Failure: f}
}

func resultTooLarge(n int) gq.Failure {
	return gq.Failure{
		Category: gq.CategoryPermanent, Code: "result_too_large",
		Message: fmt.Sprintf("the result of %d bytes is larger than the queue accepts", n),
	}
}

// refused is the failure that a success becomes which the queue will not take.
func refused(o gq.Outcome, err error) gq.Failure {
	if errs.KindOf(err) != gq.KindInvalid {
		return classify.Error(err)
	}
	faults := errs.FaultsOf(err)
	for _, f := range faults {
		if f.Field == "result" {
			return resultTooLarge(len(o.Result))
		}
	}
	f := gq.Failure{Category: gq.CategoryPermanent, Code: "invalid_outcome", Message: clip(err.Error())}
	if len(o.Spawn) > 0 {
		f.Code = "invalid_spawn"
	}
	return f
}

// clip keeps of a text what a failure keeps.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), gq.MaxMessageBytes)], "")
}
