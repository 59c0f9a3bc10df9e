package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gopherqueue/gq"
)

// Web is the shop's HTTP API.
func (s *Shop) Web() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", answer(s.postOrder))
	mux.HandleFunc("GET /orders/{id}", answer(s.getOrder))
	mux.HandleFunc("POST /orders/{id}/approval", answer(s.postApproval))
	mux.HandleFunc("POST /carts", answer(s.postCart))
	mux.HandleFunc("GET /orders/{id}/workflow", s.getWorkflow)
	return mux
}

// orderView is an order as customers see it.
type orderView struct {
	ID       string        `json:"id"`
	State    State         `json:"state"`
	Workflow gq.WorkflowID `json:"workflow"`
}

func (s *Shop) postOrder(r *http.Request) (any, error) {
	o, err := body[Order](r)
	if err != nil {
		return nil, err
	}
	// An order that came twice is the same order, for example after a timeout.
	if err := s.Place(r.Context(), o); err != nil && !errors.Is(err, errKnownOrder) {
		return nil, err
	}
	return s.view(r.Context(), o.ID)
}

// getOrder returns an order, with ?wait=10s when its workflow has ended or that time is over.
func (s *Shop) getOrder(r *http.Request) (any, error) {
	if wait := r.URL.Query().Get("wait"); wait != "" {
		d, err := time.ParseDuration(wait)
		if err != nil {
			return nil, errors.Join(errBadRequest, err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), min(d, time.Minute))
		defer cancel()
		if err := s.waitFor(ctx, r.PathValue("id")); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	return s.view(r.Context(), r.PathValue("id"))
}

// waitFor blocks until all jobs of an order have ended.
func (s *Shop) waitFor(ctx context.Context, id string) error {
	placed, err := s.DB.Order(ctx, id)
	if err != nil {
		return err
	}
	workflow, err := s.Client.Workflow(ctx, placed.Workflow)
	if err != nil {
		return err
	}
	for _, j := range workflow.Jobs {
		if _, err := s.Client.Wait(ctx, j.ID); err != nil {
			return err
		}
	}
	return nil
}

func (s *Shop) view(ctx context.Context, id string) (any, error) {
	o, err := s.DB.Order(ctx, id)
	return orderView{o.ID, o.State, o.Workflow}, err
}

func (s *Shop) postApproval(r *http.Request) (any, error) {
	a, err := body[Approval](r)
	if err != nil {
		return nil, err
	}
	if err := s.Approve(r.Context(), r.PathValue("id"), a); err != nil {
		return nil, err
	}
	return s.view(r.Context(), r.PathValue("id"))
}

func (s *Shop) postCart(r *http.Request) (any, error) {
	c, err := body[Cart](r)
	if err != nil {
		return nil, err
	}
	id, err := RemindCart.Submit(r.Context(), s.Client, c, gq.LimitKey(c.Customer))
	return map[string]gq.JobID{"reminder": id}, err
}

// getWorkflow draws the workflow of an order: as text, or with ?as=svg as a picture.
func (s *Shop) getWorkflow(w http.ResponseWriter, r *http.Request) {
	placed, err := s.DB.Order(r.Context(), r.PathValue("id"))
	if err != nil {
		fail(w, err)
		return
	}
	workflow, err := s.Client.Workflow(r.Context(), placed.Workflow)
	if err != nil {
		fail(w, err)
		return
	}
	picture, contentType := workflow.Text(), "text/plain; charset=utf-8"
	if r.URL.Query().Get("as") == "svg" {
		picture, contentType = workflow.SVG(), "image/svg+xml"
	}
	w.Header().Set("Content-Type", contentType)
	w.Write([]byte(picture)) //nolint:errcheck // the client has gone
}

// body decodes the JSON body of a request.
func body[T any](r *http.Request) (v T, err error) {
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<16)).Decode(&v); err != nil {
		return v, errors.Join(errBadRequest, err)
	}
	return v, nil
}

// answer makes a handler of a function that returns what to send as JSON.
func answer(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(v) //nolint:errcheck // the client has gone
	}
}

// fail answers with the status that fits an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errBadRequest), errors.Is(err, gq.ErrInvalid):
		status = http.StatusBadRequest
	case errors.Is(err, errNoOrder), errors.Is(err, gq.ErrNotFound): // no such order, or it waits for no approval
		status = http.StatusNotFound
	case errors.Is(err, gq.ErrIllegalMove): // the approval came too late
		status = http.StatusConflict
	case errors.Is(err, gq.ErrQueueFull), errors.Is(err, gq.ErrUnavailable):
		status = http.StatusServiceUnavailable
	}
	http.Error(w, err.Error(), status)
}
