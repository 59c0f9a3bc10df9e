package machine_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

func TestRetryable(t *testing.T) {
	spec.Covers(t, "J-100", "J-101", "J-102", "J-103", "J-104")
	for _, test := range []struct {
		category gq.Category
		want     func(timeout, system bool) bool
	}{
		{gq.CategoryTemporary, func(_, _ bool) bool { return true }},
		{gq.CategoryPermanent, func(_, _ bool) bool { return false }},
		{gq.CategoryTimeout, func(timeout, _ bool) bool { return timeout }},
		{gq.CategoryCancelled, func(_, _ bool) bool { return false }},
		{gq.CategorySystem, func(_, system bool) bool { return system }},
		{0, func(_, _ bool) bool { return false }},
	} {
		for _, timeout := range []bool{false, true} {
			for _, system := range []bool{false, true} {
				p := machine.DefaultPolicy()
				p.RetryTimeout, p.RetrySystem = timeout, system
				f := gq.Failure{Category: test.category}
				if got, want := machine.Retryable(f, &p), test.want(timeout, system); got != want {
					t.Errorf("%v with timeout %v and system %v: %v, want %v", test.category, timeout, system, got, want)
				}
				p.RetryNever = true
				if machine.Retryable(f, &p) {
					t.Errorf("%v is retried although retries are off", test.category)
				}
			}
		}
	}
}

func TestTypedErrors(t *testing.T) {
	spec.Covers(t, "J-116", "J-117", "J-118", "J-120", "J-121", "J-122")
	for _, test := range []struct {
		name  string
		err   error
		cause error
		want  gq.Failure
	}{
		{
			"Temporary", gq.Temporary(io.ErrClosedPipe), io.ErrClosedPipe,
			gq.Failure{Category: gq.CategoryTemporary, Message: "io: read/write on closed pipe"},
		},
		{
			"RetryAfter", gq.RetryAfter(io.ErrClosedPipe, time.Minute), io.ErrClosedPipe,
			gq.Failure{Category: gq.CategoryTemporary, Message: "io: read/write on closed pipe", RetryAfter: time.Minute},
		},
		{
			"TemporaryMessage", &gq.TemporaryError{Message: "printer is warming up"}, nil,
			gq.Failure{Category: gq.CategoryTemporary, Message: "printer is warming up"},
		},
		{
			"TemporaryMessageAndCause", &gq.TemporaryError{Message: "print", Cause: io.EOF}, io.EOF,
			gq.Failure{Category: gq.CategoryTemporary, Message: "print: EOF"},
		},
		{
			"Permanent", gq.Permanent(io.EOF, "no_address"), io.EOF,
			gq.Failure{Category: gq.CategoryPermanent, Code: "no_address", Message: "EOF"},
		},
		{
			"PermanentMessage", &gq.PermanentError{Message: "address has no street", Code: "bad_address"}, nil,
			gq.Failure{Category: gq.CategoryPermanent, Code: "bad_address", Message: "address has no street"},
		},
		{
			"PermanentWithoutCode", &gq.PermanentError{Message: "no"}, nil,
			gq.Failure{Category: gq.CategoryPermanent, Code: "permanent", Message: "no"},
		},
		{
			"Empty", &gq.TemporaryError{}, nil,
			gq.Failure{Category: gq.CategoryTemporary, Message: "temporary failure"},
		},
		{
			"TypedNil", (*gq.TemporaryError)(nil), nil,
			gq.Failure{Category: gq.CategoryTemporary, Message: "temporary failure"},
		},
		{
			"TypedNilPermanent", (*gq.PermanentError)(nil), nil,
			gq.Failure{Category: gq.CategoryPermanent, Code: "permanent", Message: "permanent failure"},
		},
		// The verdict overrides the text and the cause.
		{
			"TemporaryNotFound", gq.Temporary(errors.New("404 not found")), nil,
			gq.Failure{Category: gq.CategoryTemporary, Message: "404 not found"},
		},
		{
			"PermanentTimeout", gq.Permanent(errors.New("i/o timeout"), "gone"), nil,
			gq.Failure{Category: gq.CategoryPermanent, Code: "gone", Message: "i/o timeout"},
		},
		// The outermost verdict applies.
		{
			"Revised", gq.Temporary(gq.Permanent(io.EOF, "x")), io.EOF,
			gq.Failure{Category: gq.CategoryTemporary, Message: "EOF"},
		},
		{
			"NegativeRetryAfter", gq.RetryAfter(io.EOF, -time.Hour), io.EOF,
			gq.Failure{Category: gq.CategoryTemporary, Message: "EOF"},
		},
		{
			"EndlessRetryAfter", gq.RetryAfter(io.EOF, 1<<62), io.EOF,
			gq.Failure{Category: gq.CategoryTemporary, Message: "EOF", RetryAfter: gq.MaxDuration},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := classify.Error(test.err); got != test.want {
				t.Errorf("classified as %+v, want %+v", got, test.want)
			}
			if test.cause != nil && !errors.Is(test.err, test.cause) {
				t.Errorf("%v does not unwrap to %v", test.err, test.cause)
			}

			// Wrapping changes only the message.
			for _, wrapped := range []error{
				fmt.Errorf("run: %w", test.err),
				fmt.Errorf("run: %w", fmt.Errorf("inner: %w", test.err)),
				errors.Join(errors.New("first"), test.err),
				fmt.Errorf("%w and %w", io.ErrNoProgress, test.err),
			} {
				want := test.want
				want.Message = wrapped.Error()
				if got := classify.Error(wrapped); got != want {
					t.Errorf("wrapped: classified as %+v, want %+v", got, want)
				}
			}
		})
	}
}

// Of nested verdicts the outermost applies, of joined verdicts the first.
func TestFirstVerdictCounts(t *testing.T) {
	temporary, permanent := gq.Temporary(io.EOF), gq.Permanent(io.EOF, "x")
	for _, test := range []struct {
		err  error
		want gq.Category
	}{
		{gq.Temporary(permanent), gq.CategoryTemporary},
		{gq.Permanent(temporary, "y"), gq.CategoryPermanent},
		{errors.Join(temporary, permanent), gq.CategoryTemporary},
		{errors.Join(permanent, temporary), gq.CategoryPermanent},
		{errors.Join(fmt.Errorf("deeper: %w", permanent), temporary), gq.CategoryPermanent},
	} {
		if got := classify.Error(test.err); got.Category != test.want {
			t.Errorf("%#v is classified as %+v, want %v", test.err, got, test.want)
		}
	}
}

func TestVerdictOnSuccessIsSuccess(t *testing.T) {
	if err := gq.RetryAfter(nil, time.Second); err != nil {
		t.Errorf("Temporary(nil) = %v", err)
	}
	if err := gq.Permanent(nil, "code"); err != nil {
		t.Errorf("Permanent(nil) = %v", err)
	}
	if f := classify.Error(nil); f != (gq.Failure{}) {
		t.Errorf("Classify(nil) = %+v", f)
	}
}

func TestFailureTextIsCut(t *testing.T) {
	long := strings.Repeat("å", gq.MaxMessageBytes)
	f := classify.Error(gq.Permanent(errors.New("x"+long), "y"+long))
	if len(f.Message) != gq.MaxMessageBytes-1 || !utf8.ValidString(f.Message) {
		t.Errorf("message of %d bytes, valid %v", len(f.Message), utf8.ValidString(f.Message))
	}
	if len(f.Code) != gq.MaxNameBytes-1 || !utf8.ValidString(f.Code) {
		t.Errorf("code of %d bytes, valid %v", len(f.Code), utf8.ValidString(f.Code))
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		in   string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc"},
		{"aå", 2, "a"},
		{"aå", 3, "aå"},
		{"a\xffb", 10, "a\uFFFDb"},
		{"a\xff\xfeb", 10, "a\uFFFDb"},
		{"a\x00b", 10, "a\uFFFDb"},
		{"a\x00b", 3, "a"},
		{"\xe2\x82", 10, "\uFFFD"},
		{"😀", 3, ""},
		{strings.Repeat("\x80", 20), 3, "\uFFFD"},
	} {
		if got := machine.Cut(test.in, test.most); got != test.want {
			t.Errorf("%q cut to %d is %q, want %q", test.in, test.most, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "in"))
		most := rapid.IntRange(0, 40).Draw(t, "most")
		got := machine.Cut(in, most)
		switch {
		case len(got) > most:
			t.Fatalf("%d bytes of at most %d", len(got), most)
		case !utf8.ValidString(got) || strings.ContainsRune(got, 0):
			t.Fatalf("%q is not storable", got)
		case machine.Cut(got, most) != got:
			t.Fatalf("cutting %q again changes it", got)
		case utf8.ValidString(in) && !strings.ContainsRune(in, 0) && !strings.HasPrefix(in, got):
			t.Fatalf("%q is not a start of %q", got, in)
		}
	})
}

func TestCategoryNames(t *testing.T) {
	checkNames(t, enum.All[gq.Category](), enum.Parse[gq.Category], "TEMPORARY", "PERMANENT", "TIMEOUT", "CANCELLED", "SYSTEM")
}
