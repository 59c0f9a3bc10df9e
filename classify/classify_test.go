package classify_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"reflect"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// Errors that describe themselves through well-known methods.
type (
	statusError int
	awsError    struct{ status int }
	sqlError    string
	slowError   bool
)

func (e statusError) Error() string      { return "the service refused" }
func (e statusError) StatusCode() int    { return int(e) }
func (e awsError) Error() string         { return "api error ThrottlingException: Rate exceeded" }
func (e awsError) HTTPStatusCode() int   { return e.status }
func (e sqlError) Error() string         { return "the database refused" }
func (e sqlError) SQLState() string      { return string(e) }
func (e slowError) Error() string        { return "it took too long" }
func (e slowError) Timeout() bool        { return bool(e) }
func jsonError(text string, v any) error { return json.Unmarshal([]byte(text), v) }

// dialTimeout returns a real network timeout, which claims to be
// context.DeadlineExceeded.
func dialTimeout(t *testing.T) error {
	t.Helper()
	_, err := (&net.Dialer{Deadline: time.Unix(1, 0)}).Dial("tcp", "127.0.0.1:1")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a timed-out dial does not claim to be a deadline any more: %v", err)
	}
	return err
}

// crash returns a recovered run-time error.
func crash() (err error) {
	defer func() { err = recover().(error) }()
	list := make([]int, 1)
	return fmt.Errorf("element %d", list[len(os.Args)])
}

func TestClassify(t *testing.T) {
	spec.Covers(t, "J-105", "J-106", "J-107", "J-108", "J-109", "J-110", "J-111", "J-112", "J-113", "J-114", "J-115")
	text := errors.New
	var number struct{ N int }
	for _, test := range []struct {
		name     string
		err      error
		category gq.Category
		code     string
	}{
		// Network timeouts.
		{"DialTimeout", dialTimeout(t), gq.CategoryTemporary, "timeout"},
		{"ReadDeadline", &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, gq.CategoryTemporary, "timeout"},
		{"DNSTimeout", &net.DNSError{Err: "no answer", IsTimeout: true}, gq.CategoryTemporary, "timeout"},
		{"ClaimedTimeout", slowError(true), gq.CategoryTemporary, "timeout"},
		{"TimeoutText", text("read tcp 10.0.0.1:80: i/o timeout"), gq.CategoryTemporary, "timeout"},
		{"TimedOut", text("Connection timed out"), gq.CategoryTemporary, "timeout"},
		{"GRPCDeadline", text("rpc error: code = DeadlineExceeded desc = slow"), gq.CategoryTemporary, "timeout"},

		// Services that are unavailable now.
		{"Status503", statusError(503), gq.CategoryTemporary, "http_503"},
		{"Status500", statusError(500), gq.CategoryTemporary, "http_500"},
		{"Text503", text("unexpected status 503"), gq.CategoryTemporary, "http_503"},
		{"ServiceUnavailable", text("503 Service Unavailable"), gq.CategoryTemporary, "unavailable"},
		{"GRPCUnavailable", text("rpc error: code = Unavailable desc = record not found in cache"), gq.CategoryTemporary, "unavailable"},
		{"Refused", syscall.ECONNREFUSED, gq.CategoryTemporary, "connection"},
		{"Reset", text("read: connection reset by peer"), gq.CategoryTemporary, "connection"},
		{"NoSuchHost", &net.DNSError{Err: "no such host", Name: "db.internal", IsNotFound: true}, gq.CategoryTemporary, "connection"},

		// Rate limits, even behind a status that would be permanent.
		{"Status429", statusError(429), gq.CategoryTemporary, "http_429"},
		{"Text429", text("HTTP/1.1 429"), gq.CategoryTemporary, "http_429"},
		{"TooManyRequests", text("Too Many Requests"), gq.CategoryTemporary, "rate_limited"},
		{"RateLimited", text("you are being rate-limited"), gq.CategoryTemporary, "rate_limited"},
		{"RateLimitBehind403", text("status 403: API rate limit exceeded"), gq.CategoryTemporary, "rate_limited"},
		{"ThrottledBehind400", awsError{400}, gq.CategoryTemporary, "rate_limited"},

		// Resources that are temporarily missing.
		{"EAGAIN", syscall.EAGAIN, gq.CategoryTemporary, "timeout"},
		{"TemporarilyUnavailable", text("fork: resource temporarily unavailable"), gq.CategoryTemporary, "unavailable"},
		{"TooManyConnections", sqlError("53300"), gq.CategoryTemporary, "sqlstate_53300"},

		// Deadlocks and similar.
		{"Deadlock", text("ERROR: deadlock detected"), gq.CategoryTemporary, "deadlock"},
		{"DeadlockState", sqlError("40P01"), gq.CategoryTemporary, "sqlstate_40P01"},
		{"Serialization", sqlError("40001"), gq.CategoryTemporary, "sqlstate_40001"},
		{"LockNotAvailable", sqlError("55P03"), gq.CategoryTemporary, "sqlstate_55P03"},
		{"ConnectionState", sqlError("08006"), gq.CategoryTemporary, "sqlstate_08006"},
		{"ShuttingDown", sqlError("57P01"), gq.CategoryTemporary, "sqlstate_57P01"},

		// Undecodable payloads.
		{"JSONSyntax", jsonError(`{"n":`, &number), gq.CategoryPermanent, "invalid_json"},
		{"JSONType", jsonError(`{"n":"x"}`, &number), gq.CategoryPermanent, "invalid_json"},
		{"JSONTarget", jsonError(`{}`, number), gq.CategoryPermanent, "invalid_json"},
		{"InvalidPayload", text("invalid payload: no address"), gq.CategoryPermanent, "invalid"},
		{"DataState", sqlError("22P02"), gq.CategoryPermanent, "sqlstate_22P02"},

		// What does not exist.
		{"NoRows", fmt.Errorf("load user 7: %w", sql.ErrNoRows), gq.CategoryPermanent, "not_found"},
		{"NotExist", &fs.PathError{Op: "open", Path: "a", Err: fs.ErrNotExist}, gq.CategoryPermanent, "not_found"},
		{"ENOENT", syscall.ENOENT, gq.CategoryPermanent, "not_found"},
		{"NotFound", text("user 7 not found"), gq.CategoryPermanent, "not_found"},
		{"NotFoundCode", text("error NOT_FOUND"), gq.CategoryPermanent, "not_found"},
		{"Status404", statusError(404), gq.CategoryPermanent, "http_404"},
		{"Status410", statusError(410), gq.CategoryPermanent, "http_410"},
		{"GRPCNotFound", text("rpc error: code = NotFound desc = user"), gq.CategoryPermanent, "not_found"},

		// What is not allowed.
		{"Permission", fmt.Errorf("open: %w", fs.ErrPermission), gq.CategoryPermanent, "denied"},
		{"EPERM", syscall.EPERM, gq.CategoryPermanent, "denied"},
		{"Forbidden", text("403 Forbidden"), gq.CategoryPermanent, "denied"},
		{"Status401", statusError(401), gq.CategoryPermanent, "http_401"},
		{"PrivilegeState", sqlError("42501"), gq.CategoryPermanent, "sqlstate_42501"},
		{"GRPCDenied", text("rpc error: code = PermissionDenied desc = no"), gq.CategoryPermanent, "denied"},

		// Rules of the application.
		{"BusinessRule", text("business rule: orders above 1000 need an approval"), gq.CategoryPermanent, "rule_violated"},
		{"Violation", text("credit limit violation"), gq.CategoryPermanent, "rule_violated"},
		{"ConstraintState", sqlError("23505"), gq.CategoryPermanent, "sqlstate_23505"},
		{"ConstraintText", text(`insert violates foreign-key constraint "a"`), gq.CategoryPermanent, "rule_violated"},

		// Invalid requests.
		{"Status400", statusError(400), gq.CategoryPermanent, "http_400"},
		{"Text400", text("call billing: unexpected status code: 400"), gq.CategoryPermanent, "http_400"},
		{"ResponseCode400", text("response code=400"), gq.CategoryPermanent, "http_400"},
		{"BadRequest", text("400 Bad Request"), gq.CategoryPermanent, "invalid"},
		{"Status422", statusError(422), gq.CategoryPermanent, "http_422"},
		{"ValidationFailed", text("validation failed: email is empty"), gq.CategoryPermanent, "invalid"},
		{"ValidationError", text("3 validation errors"), gq.CategoryPermanent, "invalid"},

		// Time limits, crashes and exhausted machines.
		{"Deadline", context.DeadlineExceeded, gq.CategoryTimeout, "deadline_exceeded"},
		{"DeadlineInCall", &url.Error{Op: "Get", URL: "http://a", Err: context.DeadlineExceeded}, gq.CategoryTimeout, "deadline_exceeded"},
		{"RuntimeError", crash(), gq.CategorySystem, "panic"},
		{"DiskFull", syscall.ENOSPC, gq.CategorySystem, "resources"},
		{"NoMemory", syscall.ENOMEM, gq.CategorySystem, "resources"},
		{"NoProgram", text(`exec: "convert": executable file not found in $PATH`), gq.CategorySystem, "resources"},
		{"Killed", text("signal: killed"), gq.CategorySystem, "crash"},
		{"Segfault", text("segmentation violation"), gq.CategorySystem, "crash"},

		// Errors of this module.
		{"OwnInvalid", fmt.Errorf("submit: %w", &gq.InvalidError{Faults: []gq.Fault{{Field: "type", Problem: "is missing"}}}), gq.CategoryPermanent, "invalid"},
		{"OwnNotFound", gq.ErrNotFound, gq.CategoryPermanent, "not_found"},
		{"OwnQueueFull", gq.ErrQueueFull, gq.CategoryTemporary, "queue_full"},

		// This error does not say that a user cancelled the job.
		{"Canceled", context.Canceled, gq.CategoryTemporary, ""},
		{"Unknown", text("the printer is on fire"), gq.CategoryTemporary, ""},
		{"Empty", text(""), gq.CategoryTemporary, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, err := range []error{test.err, fmt.Errorf("step 3: %w", test.err)} {
				want := gq.Failure{Category: test.category, Code: test.code, Message: err.Error()}
				if got := classify.Words(err); got != want {
					t.Errorf("by words too it is %+v, want %+v", got, want)
				}
				if reflect.TypeOf(test.err) == reflect.TypeOf(text("")) { // only its text says anything
					want.Category, want.Code = gq.CategoryTemporary, ""
				}
				if throttled := (awsError{}); errors.As(err, &throttled) {
					want.Category, want.Code = gq.CategoryPermanent, "http_400"
				}
				if got := classify.Error(err); got != want {
					t.Errorf("classified as %+v, want %+v", got, want)
				}
			}
		})
	}
}

// What a text says decides nothing by default.
func TestClassifyIgnoresWords(t *testing.T) {
	for _, text := range []string{
		"row not found in replica, retry later", "401 unauthorized: token expired",
		"malformed response from upstream", "smtp: 550 no such user", "out of memory", "status 404",
	} {
		want := gq.Failure{Category: gq.CategoryTemporary, Message: text}
		for name, of := range map[string]func(error) gq.Failure{"Error": classify.Error, "Verdict": classify.Verdict} {
			if got := of(errors.New(text)); got != want {
				t.Errorf("%s(%q) is %+v", name, text, got)
			}
		}
	}
}

// Words and numbers that only look like evidence must not fail a job permanently, even if words count.
func TestClassifyIsNotFooled(t *testing.T) {
	for _, text := range []string{
		"processed 404 rows, then stopped",
		"order 4041 was not accepted by the printer",
		"account 1404",
		"status 4040",
		"status1404",
		"statuses 404 and so on",
		"exit code 400",
		"code 404",
		"exit status 1",
		"the knot foundation crumbled",
		"inviolate principle",
		"accurate limits",
		"invalid timeout value",
		"unforbiddenly",
		"this is not foundational",
		"status 399",
		"status 600",
		"rule is fine",
		": 404",
		"404",
	} {
		if got, want := classify.Words(errors.New(text)), (gq.Failure{Category: gq.CategoryTemporary, Message: text}); got != want {
			t.Errorf("%q is classified as %+v", text, got)
		}
	}
	for _, err := range []error{statusError(200), statusError(0), sqlError(""), sqlError("XX000"), sqlError("23"), slowError(false)} {
		if got := classify.Error(err); got.Category != gq.CategoryTemporary || got.Code != "" {
			t.Errorf("%T is classified as %+v", err, got)
		}
	}
}

// Errors that misbehave.
type (
	panicError struct{}
	halfError  struct{}
	ringError  struct{ _ int } // not empty: each has an address
	listError  []error
)

func (panicError) Error() string         { panic("no text") }
func (panicError) Timeout() bool         { panic("no answer") }
func (halfError) Error() string          { return "half broken" }
func (halfError) Unwrap() error          { panic("no cause") }
func (r *ringError) Error() string       { return "ring" }
func (r *ringError) Unwrap() []error     { return []error{nil, r, r} }
func (l listError) Error() string        { return "list" }
func (l listError) Is(target error) bool { panic("not asked") }
func (l listError) As(target any) bool   { panic("not asked") }
func (l listError) Unwrap() []error      { return l }
func (r *ringError) SQLState() string    { return "" }
func (l listError) HTTPStatusCode() int  { return 0 }
func (halfError) HTTPStatusCode() int    { return 404 }

func TestClassifySurvivesBrokenErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want gq.Failure
	}{
		{"Panicking", panicError{}, gq.Failure{Category: gq.CategoryTemporary, Message: "classify_test.panicError, which cannot print itself"}},
		{"NilPointer", (*net.OpError)(nil), gq.Failure{Category: gq.CategoryTemporary, Message: "<nil>"}},
		{"HalfBroken", halfError{}, gq.Failure{Category: gq.CategoryTemporary, Message: "half broken"}},
		{"Ring", &ringError{}, gq.Failure{Category: gq.CategoryTemporary, Message: "ring"}},
		{"Incomparable", listError{listError{nil}, gq.Permanent(listError{}, "inner")}, gq.Failure{Category: gq.CategoryPermanent, Code: "inner", Message: "list"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := classify.Error(test.err); got != test.want {
				t.Errorf("classified as %+v, want %+v", got, test.want)
			}
		})
	}
}

// Every error has exactly one category and can be stored.
func TestClassifyIsTotal(t *testing.T) {
	spec.Covers(t, "J-99")
	leaves := []error{
		context.DeadlineExceeded, context.Canceled, sql.ErrNoRows, gq.ErrStaleLease, crash(),
		statusError(503), sqlError("23505"),
		panicError{},
		&ringError{}, gq.Permanent(errors.New("x"), "y"),
	}
	rapid.Check(t, func(t *rapid.T) {
		err := rapid.OneOf(
			rapid.SampledFrom(leaves),
			rapid.Map(rapid.String(), errors.New),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) error { return errors.New(string(b)) }),
		).Draw(t, "error")
		for range rapid.IntRange(0, 5).Draw(t, "wraps") {
			switch rapid.IntRange(0, 3).Draw(t, "wrap") {
			case 0:
				err = fmt.Errorf("%s: %w", rapid.String().Draw(t, "text"), err)
			case 1:
				err = errors.Join(errors.New("first"), err)
			case 2:
				err = gq.RetryAfter(err, time.Duration(rapid.Int64().Draw(t, "after")))
			case 3:
				err = gq.Permanent(err, rapid.String().Draw(t, "code"))
			}
		}
		f := classify.Error(err)
		switch {
		case !f.Category.Valid():
			t.Fatalf("no category: %+v", f)
		case classify.Error(err) != f:
			t.Fatalf("a second look differs from %+v", f)
		case len(f.Message) > gq.MaxMessageBytes || len(f.Code) > gq.MaxNameBytes:
			t.Fatalf("too long: %+v", f)
		case !utf8.ValidString(f.Message) || !utf8.ValidString(f.Code):
			t.Fatalf("not UTF-8: %+v", f)
		case f.RetryAfter < 0 || f.RetryAfter > gq.MaxDuration:
			t.Fatalf("retry after %v", f.RetryAfter)
		}
	})
}

// A handler may return any error of this module; each kind has a category.
func TestClassifyOwnKinds(t *testing.T) {
	permanent := map[gq.ErrorKind]bool{gq.KindInvalid: true, gq.KindNotFound: true, gq.KindDuplicate: true, gq.KindDenied: true, gq.KindUnauthenticated: true}
	for _, kind := range enum.All[gq.ErrorKind]() {
		want := gq.CategoryTemporary
		if permanent[kind] {
			want = gq.CategoryPermanent
		}
		if got := classify.Error(&gq.Error{Kind: kind, Code: "x"}); got.Category != want || got.Code != "x" {
			t.Errorf("%v is classified as %+v, want %v", kind, got, want)
		}
	}
}
