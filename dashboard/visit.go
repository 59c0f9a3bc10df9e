package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/httpx"
)

// pageTime limits how long a page may take.
const pageTime = 20 * time.Second

// maxForm is the largest form.
const maxForm = 64 << 10

// visit is one request.
type visit struct {
	d       *Dashboard
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context //nolint:containedctx // of calls on behalf of the visitor
	who     *Visitor
	session string                              // id; "" without one
	id      string                              // of the request
	status  int                                 // of the response; 0 is 200
	after   string                              // newest event before the page was read; "" if unknown
	publish func(body []byte, formToken string) // gives the page to others who wait for it; nil if nobody does
	watch   string                              // whose changes make an open page reload its parts: all, queue:NAME, job:ID, or clock for none; "" never reloads
}

func kindOf(err error) gq.ErrorKind {
	if err == nil {
		return gq.KindInternal
	}
	return errs.KindOf(err)
}

// serve runs a handler with the identity of the visitor, and shows its error.
func (d *Dashboard) serve(w http.ResponseWriter, r *http.Request, f func(*visit) error) {
	v := &visit{d: d, w: w, r: r, id: httpx.NameRequest(w, r)}
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			d.options.Log.Error("panic in the dashboard", "request_id", v.id, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			v.fail(errors.New("panic"))
		}
	}()
	if err := v.begin(f); err != nil {
		v.fail(err)
	}
}

func (v *visit) begin(f func(*visit) error) error {
	path := v.path()
	if v.d.options.Access == nil || !v.d.options.Access.Required(v.r.Context()) {
		if v.d.foreignHost(v.r) {
			return refused(fmt.Sprintf("This server is not %.200q. Call it by its IP address or as localhost.", v.r.Host))
		}
	}
	v.who, v.session = v.d.identify(v.r)
	if v.r.Method == http.MethodPost {
		v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	}
	open := path == "signin" || path == "signout" || strings.HasPrefix(path, "assets/")
	if v.who == nil && !open {
		if path == "live" {
			return gq.ErrUnauthenticated
		}
		next := path
		if v.r.URL.RawQuery != "" {
			next += "?" + v.r.URL.RawQuery
		}
		if v.r.Method == http.MethodPost {
			next = ""
		}
		problem := ""
		if _, err := v.r.Cookie(cookieName); err == nil {
			problem = "Your session has ended. Sign in again."
		} else if v.r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			// Browsers keep the cookie back when somebody follows a link on another site. They send it when this
			// page loads itself again, and are no longer cross-site then.
			v.w.Header().Set("Refresh", "0")
		}
		return v.signInForm(problem, next, http.StatusUnauthorized)
	}
	if v.r.Method == http.MethodPost {
		if err := v.checkForm(); err != nil {
			return err
		}
		defer v.d.shared.clear()
	}
	v.ctx = context.WithValue(v.r.Context(), remoteAddrKey{}, v.r.RemoteAddr)
	if v.who != nil && v.who.Context != nil {
		v.ctx = v.who.Context(v.ctx)
	}
	if path != "live" {
		ctx, cancel := context.WithTimeout(v.ctx, pageTime)
		defer cancel()
		v.ctx = ctx
	}
	if v.who != nil && v.r.Method == http.MethodGet && !open && path != "live" && !v.reloads() {
		if last, err := v.d.queue.LastEvent(v.ctx); err == nil { // without it the page is told only what comes later
			v.after = strconv.FormatUint(last, 10)
		}
	}
	return v.share(path, f)
}

// reloads reports whether an open page reads itself again.
func (v *visit) reloads() bool { return v.r.Header.Get("Gq-Reload") != "" }

// path returns the path within the dashboard, without a leading slash.
func (v *visit) path() string {
	return strings.TrimPrefix(strings.TrimPrefix(v.r.URL.Path, v.d.options.Prefix), "/")
}

// root returns the relative path to the first page.
func (v *visit) root() string {
	if n := strings.Count(v.path(), "/"); n > 0 {
		return strings.Repeat("../", n)
	}
	return "./"
}

// redirect continues at a path within the dashboard. The address is relative, because a proxy
// may have removed a prefix.
func (v *visit) redirect(to string) error {
	v.w.Header().Set("Location", v.root()+to)
	v.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// done continues at a page that says what was done; done is a key of doneTexts.
func (v *visit) done(to, done string, parameters ...string) error {
	q := url.Values{"done": {done}}
	for i := 0; i+1 < len(parameters); i += 2 {
		q.Set(parameters[i], parameters[i+1])
	}
	return v.redirect(to + "?" + q.Encode())
}

// audit records an action and passes its error on.
func (v *visit) audit(name, target string, err error) error {
	a := Action{Visitor: v.who.Name, Name: name, Target: target, From: v.r.RemoteAddr, Err: err}
	if v.d.options.Audit != nil {
		v.d.options.Audit(v.ctx, a)
		return err
	}
	v.d.options.Log.LogAttrs(v.ctx, slog.LevelInfo, "action in the dashboard", a.attributes()...)
	return err
}

func (a Action) attributes() []slog.Attr {
	attributes := []slog.Attr{
		slog.String("event", "audit"), slog.String("visitor", a.Visitor), slog.String("action", a.Name),
		slog.String("target", a.Target), slog.String("caller", a.From),
	}
	if a.Err != nil {
		attributes = append(attributes, slog.String("error", a.Err.Error()))
	}
	return attributes
}

// refused is the error of a request that looks like an attack.
func refused(text string) error { return &refusal{text} }

type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func (r *refusal) Unwrap() error { return gq.ErrDenied }

// notHere is the error of a path without a page.
func (v *visit) notHere() error {
	return gq.ErrNotFound.Errorf("There is no page at this address.")
}

// failure is the page of an error.
type failure struct {
	Title, Text string
	Faults      []gq.Fault
	RequestID   string
	Reload      bool   // it may work later, and the page tries again
	Back        string // page from which a form was sent; "" if unknown
}

var failures = map[gq.ErrorKind]struct {
	status int
	title  string
}{
	gq.KindInternal:        {http.StatusInternalServerError, "Something went wrong"},
	gq.KindInvalid:         {http.StatusBadRequest, "That is not possible"},
	gq.KindNotFound:        {http.StatusNotFound, "Not found"},
	gq.KindConflict:        {http.StatusConflict, "Not possible now"},
	gq.KindStaleLease:      {http.StatusConflict, "Not possible now"},
	gq.KindDuplicate:       {http.StatusConflict, "Not possible now"},
	gq.KindExhausted:       {http.StatusTooManyRequests, "Limit reached"},
	gq.KindUnavailable:     {http.StatusServiceUnavailable, "The queue is not available"},
	gq.KindTimeout:         {http.StatusGatewayTimeout, "This took too long"},
	gq.KindDenied:          {http.StatusForbidden, "Not allowed"},
	gq.KindUnauthenticated: {http.StatusUnauthorized, "Sign in first"},
}

// fail shows an error. The text of internal ones stays in the log.
func (v *visit) fail(err error) {
	kind := kindOf(err)
	if kind == gq.KindInternal {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			kind, err = gq.KindTimeout, errors.New("The queue did not answer in time.") //nolint:staticcheck // shown to people
		case errors.Is(err, context.Canceled):
			return // the browser has gone
		default:
			v.d.options.Log.Error("internal error in the dashboard", "request_id", v.id, "path", v.r.URL.Path, "error", err)
			err = errors.New("An internal error occurred; the log of the server has the details.") //nolint:staticcheck // shown to people
		}
	}
	if kind == gq.KindUnauthenticated && v.path() != "live" && v.who != nil {
		// The token was revoked or expired during the request.
		_ = v.signInForm("Your session has ended. Sign in again.", "", http.StatusUnauthorized)
		return
	}
	at := failures[kind]
	v.status, v.watch = at.status, ""
	if v.path() == "live" {
		text := at.title
		if kind == gq.KindExhausted { // it has the number
			text = sentence(err.Error())
			if later, ok := errors.AsType[interface {
				error
				RetryAfter() time.Duration
			}](err); ok {
				v.w.Header().Set("Retry-After", strconv.Itoa(int(later.RetryAfter()/time.Second)))
			}
		}
		http.Error(v.w, text, at.status)
		return
	}
	view := failure{Title: at.title, Text: sentence(err.Error()), RequestID: v.id, Faults: errs.FaultsOf(err)}
	later := kind == gq.KindUnavailable || kind == gq.KindTimeout || kind == gq.KindExhausted || kind == gq.KindInternal
	if v.r.Method == http.MethodPost {
		view.Back = v.sentFrom()
	} else if view.Reload = later; later {
		v.w.Header().Set("Refresh", "5") // the page recovers by itself, also without scripts
	}
	if err := v.show("failure", at.title, view); err != nil {
		v.d.options.Log.Error("render an error page", "request_id", v.id, "error", err)
	}
}

// sentFrom returns the address of the page whose form the browser sent, "" if it is not one of this server.
func (v *visit) sentFrom() string {
	from, err := url.Parse(v.r.Referer())
	if err != nil || from.Scheme != "http" && from.Scheme != "https" || !sameOrigin(v.r) || !ofHost(v.r, from.Host) {
		return ""
	}
	return from.String()
}

// sentence makes an error message read as one.
func sentence(text string) string {
	if text == "" {
		return text
	}
	first, size := utf8.DecodeRuneInString(text)
	if size > 1 || first < utf8.RuneSelf {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// view is what every template gets.
type view struct {
	Root    template.URL // relative path to the first page
	Page    string       // name of the template
	Path    string       // within the dashboard
	Title   string
	Brand   string
	Version string
	Visitor string // "" before sign-in
	SignOut bool
	CSRF    string
	Watch   string
	After   string // see visit.after
	Done    string // what the last action did
	Now     time.Time
	Data    any
	v       *visit
}

// May reports whether the visitor has a permission on a queue; "" is all of them.
func (w view) May(permission, queue string) bool {
	if w.v.who == nil {
		return false
	}
	return w.v.who.may(permissionNames[permission], queue)
}

var permissionNames = map[string]Permission{"read": Read, "payloads": Payloads, "submit": Submit, "admin": Admin}

// show renders a page.
func (v *visit) show(name, title string, data any) error {
	w := view{
		Root: template.URL(v.root()), Page: name, Path: v.path(), Title: title, Brand: v.d.options.Title, Version: v.d.options.Version, //nolint:gosec // only dots and slashes
		CSRF: v.d.formToken(v.session, v.r.URL.RequestURI()), Watch: v.watch, After: v.after, Now: v.d.now(), Data: data, v: v, Done: doneText(v.r.URL.Query()), SignOut: v.session != "",
	}
	if v.who != nil {
		w.Visitor = v.who.Name
	}
	var out bytes.Buffer
	if err := v.d.pages[name].ExecuteTemplate(&out, "layout", w); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	if v.publish != nil && v.status == 0 && out.Len() <= maxSharedSize {
		v.publish(out.Bytes(), w.CSRF) // before the page is sent: others must not wait for a slow browser
	}
	v.write(out.Bytes())
	return nil
}

// write sends a page.
func (v *visit) write(page []byte) {
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page = v.encode(page, nil)
	if v.status != 0 {
		v.w.WriteHeader(v.status)
	}
	if v.r.Method != http.MethodHead {
		_, _ = v.w.Write(page) // an error means that the browser has gone
	}
}
