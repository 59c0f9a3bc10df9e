package httpx

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gopherqueue/gq/internal/wire"
)

// note logs a call at level debug. Queries and bodies are left out: they can hold what is secret.
func note(log *slog.Logger, r *http.Request, id string, status int, code string, began time.Time) {
	ctx := context.WithoutCancel(r.Context())
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	attributes := []slog.Attr{
		slog.String("request_id", id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Int("status", max(status, http.StatusOK)), slog.Float64("took_ms", float64(time.Since(began).Microseconds())/1000),
	}
	if code != "" {
		attributes = append(attributes, slog.String("code", code))
	}
	log.LogAttrs(ctx, slog.LevelDebug, "call", attributes...)
}

// Logged logs the calls of a handler that is not an [API] as those of an API are logged. The
// handler names its requests.
func Logged(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, began := &answered{ResponseWriter: w}, time.Now()
		defer func() { note(log, r, w.Header().Get("X-Request-Id"), answer.status, "", began) }()
		next.ServeHTTP(answer, r)
	})
}

// answered is a response writer that keeps the status.
type answered struct {
	http.ResponseWriter
	status int // 0 before the answer, which means 200
}

// WriteHeader implements [http.ResponseWriter].
func (a *answered) WriteHeader(status int) {
	if a.status < 200 { // not after an early 1xx
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] reach the underlying writer.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Refuse answers a request that reaches no API with a problem, and logs it as an API does.
func Refuse(log *slog.Logger, w http.ResponseWriter, r *http.Request, p *wire.Problem) {
	began := time.Now()
	p.RequestID = NameRequest(w, r)
	w.Header().Set("Content-Type", wire.ProblemType)
	w.WriteHeader(p.Status)
	_ = wire.EncodeJSON(w, p) // an error means that the client has gone
	note(log, r, p.RequestID, p.Status, p.Code, began)
}
