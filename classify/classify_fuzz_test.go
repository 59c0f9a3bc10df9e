package classify_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
)

type fuzzedError struct {
	text     string
	status   int
	sqlState string
	timeout  bool
	inner    error
}

func (e *fuzzedError) Error() string    { return e.text }
func (e *fuzzedError) StatusCode() int  { return e.status }
func (e *fuzzedError) SQLState() string { return e.sqlState }
func (e *fuzzedError) Timeout() bool    { return e.timeout }
func (e *fuzzedError) Unwrap() error    { return e.inner }

func FuzzClassify(f *testing.F) {
	f.Add("HTTP 503", 0, "", false, "")
	f.Add("HTTP/1.1 status code: 4294967297", 404, "40P01", true, "deadlock detected")
	f.Add("status\x00 429 \xff", -1, "23", false, "not found")
	f.Fuzz(func(t *testing.T, text string, status int, sqlState string, timeout bool, inner string) {
		err := &fuzzedError{text, status, sqlState, timeout, errors.New(inner)}
		v := classify.Words(err)
		if !v.Category.Valid() || len(v.Message) > gq.MaxMessageBytes || len(v.Code) > gq.MaxNameBytes ||
			!utf8.ValidString(v.Message) || !utf8.ValidString(v.Code) || strings.ContainsRune(v.Message, 0) {
			t.Errorf("classified as %+v", v)
		}
		if again := classify.Words(err); again != v {
			t.Errorf("classified as %+v, and then as %+v", v, again)
		}
	})
}
