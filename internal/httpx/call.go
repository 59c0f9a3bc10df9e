package httpx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
)

// Call is one request together with its response writer.
type Call struct {
	Request *http.Request
	ID      string // request id, used in log entries

	w      http.ResponseWriter
	api    *API
	route  *Route
	wrote  bool
	status int    // 0 before the answer, which means 200
	code   string // of a refusal
}

type callKey struct{}

// CallOf returns the call that a handler's context belongs to, or nil.
func CallOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Header returns the response headers.
func (c *Call) Header() http.Header { return c.w.Header() }

// Write writes a part of the response body.
func (c *Call) Write(b []byte) (int, error) {
	c.wrote = true
	return c.w.Write(b)
}

// WriteHeader starts the response with a status.
func (c *Call) WriteHeader(status int) {
	c.wrote = true
	if c.status < 200 { // not after an early 1xx
		c.status = status
	}
	c.w.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] reach the underlying writer.
func (c *Call) Unwrap() http.ResponseWriter { return c.w }

// AnswerAfter extends the write deadline for a response that may take this long to start.
func (c *Call) AnswerAfter(wait time.Duration) {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(wait + c.api.options.WriteTimeout)) // test recorders have no deadline
}

// Told calls [API.Told] for this call.
func (c *Call) Told(err error) error { return c.api.Told(c, err) }

// Body size limits.
const (
	smallBody  = 256 << 10 // for routes that take no payload
	maxDiscard = 64 << 20  // how much of an oversized body is read and discarded
)

// body reads the request body. An absent body is nil if the route allows that.
func (c *Call) body() ([]byte, error) {
	if encoding := c.Request.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, wire.NewProblem(http.StatusUnsupportedMediaType, "unsupported_encoding",
			fmt.Sprintf("the content encoding %.100q is not taken here; send the body as it is", encoding))
	}
	most := c.api.options.MaxBody
	if !c.route.Large {
		most = min(most, smallBody)
	}
	data, err := c.readAll(most)
	if err != nil {
		return nil, err
	}
	if c.route.Optional && len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	return data, checkContentType(c.Request.Header.Get("Content-Type"))
}

// readAll reads a body of at most the given size before the body deadline.
func (c *Call) readAll(most int64) ([]byte, error) {
	in := c.Request.Body
	if in == nil || in == http.NoBody {
		return nil, nil
	}
	controller := http.NewResponseController(c.w)
	_ = controller.SetReadDeadline(time.Now().Add(c.api.options.BodyTimeout)) // test recorders have no deadline
	var body bytes.Buffer
	if n := c.Request.ContentLength; n > 0 && n <= most {
		body.Grow(int(min(n, 1<<20)) + bytes.MinRead)
	}
	_, err := io.Copy(&body, io.LimitReader(in, most+1))
	if err == nil && int64(body.Len()) <= most {
		_ = controller.SetReadDeadline(time.Time{}) // else it would cut off a long wait
		return body.Bytes(), nil
	}
	c.Header().Set("Connection", "close")
	switch {
	case err == nil:
		_, _ = io.CopyN(io.Discard, in, maxDiscard) // many clients do not read the response before they have sent the whole body
		return nil, wire.NewProblem(http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body is larger than %d bytes", most))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, wire.NewProblem(http.StatusRequestTimeout, "body_incomplete", fmt.Sprintf("the body did not come within %v", c.api.options.BodyTimeout))
	default:
		return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "body", Problem: "cannot be read: " + err.Error()}}}
	}
}

// checkContentType rejects content types other than JSON. It accepts curl's default,
// application/x-www-form-urlencoded, as JSON.
func checkContentType(text string) error {
	if text == "" || text == "application/json" {
		return nil
	}
	name, parameters, err := mime.ParseMediaType(text)
	charset := strings.ToLower(parameters["charset"])
	switch {
	case err != nil:
	case charset != "" && charset != "utf-8":
	case name == "application/json", strings.HasSuffix(name, "+json"), name == "application/x-www-form-urlencoded":
		return nil
	}
	return wire.NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type",
		fmt.Sprintf("%.100q is not taken here; send application/json in UTF-8", text))
}

// answer writes a JSON response.
func (c *Call) answer(status int, form string, body any) error {
	var b bytes.Buffer
	if err := wire.EncodeJSON(&b, body); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	c.Header().Set("Content-Type", form)
	c.WriteHeader(status)
	if c.Request.Method != http.MethodHead {
		_, _ = c.Write(b.Bytes()) // an error means that the client has gone
	}
	return nil
}
