package native

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

func (h *HTTP) scheduleRoutes() []httpx.Route {
	return []httpx.Route{
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/schedules", ID: "list-schedules", Tag: "schedules", Summary: "List schedules",
		}, h.schedules),
		httpx.Handle(httpx.Route{
			Method: http.MethodGet, Path: "/v1/schedules/{name}", ID: "get-schedule", Tag: "schedules", Summary: "Read a schedule",
		}, h.schedule),
		httpx.Handle(httpx.Route{
			Method: http.MethodPut, Path: "/v1/schedules/{name}", ID: "set-schedule", Tag: "schedules", Large: true, Summary: "Make or replace a schedule",
		}, h.setSchedule),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/schedules/{name}/declare", ID: "declare-schedule", Tag: "schedules", Large: true,
			Summary:     "Declare a schedule at program start",
			Description: "It is made if it does not exist. What somebody has changed since the last declaration, such as a pause, stays as it is.",
		}, h.declareSchedule),
		httpx.Handle(httpx.Route{
			Method: http.MethodDelete, Path: "/v1/schedules/{name}", ID: "delete-schedule", Tag: "schedules", Status: http.StatusNoContent,
			Summary: "Delete a schedule", Description: "Jobs that it has submitted stay.",
		}, h.deleteSchedule),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/schedules/{name}/pause", ID: "pause-schedule", Tag: "schedules", Optional: true, Summary: "Pause a schedule",
		}, h.pauseSchedule),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/schedules/{name}/resume", ID: "resume-schedule", Tag: "schedules", Optional: true,
			Summary: "Resume a schedule", Description: "Slots that passed meanwhile are not made up for.",
		}, h.resumeSchedule),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/schedules/{name}/trigger", ID: "trigger-schedule", Tag: "schedules", Optional: true,
			Summary: "Submit a job of a schedule now", Description: "Its slot is the current second. The next slot of the schedule stays.",
		}, h.triggerSchedule),
		httpx.Handle(httpx.Route{
			Method: http.MethodPost, Path: "/v1/schedules/{name}/backfill", ID: "backfill-schedule", Tag: "schedules",
			Summary: "Submit the jobs of past slots that have none", Description: "If the queue cannot hold the jobs of the whole range, none is submitted.",
		}, h.backfillSchedule),
	}
}

func (h *HTTP) schedules(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[wire.Schedules], error) {
	all, err := h.engine.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	out := httpx.OK(wire.Schedules{Schedules: make([]wire.Schedule, len(all))})
	for i := range all {
		out.Body.Schedules[i] = wire.ScheduleOf(&all[i])
	}
	return out, nil
}

func scheduled(s gq.Schedule, err error) (*httpx.Answer[wire.Schedule], error) {
	if err != nil {
		return nil, wire.ScheduleFaults(err)
	}
	return httpx.OK(wire.ScheduleOf(&s)), nil
}

func (h *HTTP) schedule(ctx context.Context, in *scheduleInput, _ *httpx.None) (*httpx.Answer[wire.Schedule], error) {
	return scheduled(h.engine.Schedule(ctx, in.Name))
}

func (h *HTTP) setSchedule(ctx context.Context, in *scheduleInput, body *wire.ScheduleDraft) (*httpx.Answer[wire.Schedule], error) {
	s, err := body.Domain(in.Name, h.queuePolicy(ctx))
	if err != nil {
		return nil, err
	}
	return scheduled(h.engine.PutSchedule(ctx, s))
}

func (h *HTTP) declareSchedule(ctx context.Context, in *scheduleInput, body *wire.ScheduleDraft) (*httpx.Answer[wire.Schedule], error) {
	s, err := body.Domain(in.Name, h.queuePolicy(ctx))
	if err != nil {
		return nil, err
	}
	return scheduled(h.engine.DeclareSchedule(ctx, s))
}

func (h *HTTP) deleteSchedule(ctx context.Context, in *scheduleInput, _ *httpx.None) (*httpx.Answer[httpx.None], error) {
	return nil, h.engine.DeleteSchedule(ctx, in.Name)
}

func (h *HTTP) pauseSchedule(ctx context.Context, in *scheduleInput, _ *emptyBody) (*httpx.Answer[wire.Schedule], error) {
	return scheduled(h.engine.PauseSchedule(ctx, in.Name))
}

func (h *HTTP) resumeSchedule(ctx context.Context, in *scheduleInput, _ *emptyBody) (*httpx.Answer[wire.Schedule], error) {
	return scheduled(h.engine.ResumeSchedule(ctx, in.Name))
}

func (h *HTTP) triggerSchedule(ctx context.Context, in *scheduleInput, _ *emptyBody) (*httpx.Answer[wire.Firing], error) {
	f, err := h.engine.TriggerSchedule(ctx, in.Name)
	if err != nil {
		return nil, wire.ScheduleFaults(err)
	}
	return httpx.OK(wire.FiringOf(&f)), nil
}

func (h *HTTP) backfillSchedule(ctx context.Context, in *scheduleInput, body *wire.Backfill) (*httpx.Answer[wire.BackfillReport], error) {
	r, err := h.engine.BackfillSchedule(ctx, body.Domain(in.Name))
	if err != nil {
		return nil, wire.ScheduleFaults(err)
	}
	return httpx.OK(wire.BackfillReportOf(&r)), nil
}

type schedulesServer struct {
	pb.UnimplementedSchedulesServiceServer
	*GRPC
}

func answerSchedule(s gq.Schedule, err error) (*pb.Schedule, error) {
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoSchedule(&s), nil
}

func (s *schedulesServer) GetSchedule(ctx context.Context, r *pb.GetScheduleRequest) (*pb.Schedule, error) {
	return answerSchedule(s.engine.Schedule(ctx, r.GetName()))
}

func (s *schedulesServer) ListSchedules(ctx context.Context, _ *pb.ListSchedulesRequest) (*pb.ListSchedulesResponse, error) {
	all, err := s.engine.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	answer := &pb.ListSchedulesResponse{Schedules: make([]*pb.Schedule, len(all))}
	for i := range all {
		answer.Schedules[i] = pbconv.ProtoSchedule(&all[i])
	}
	return answer, nil
}

func (s *schedulesServer) SetSchedule(ctx context.Context, r *pb.SetScheduleRequest) (*pb.Schedule, error) {
	schedule, err := pbconv.Bases(s.base(ctx)).Schedule(r.GetSchedule())
	if err != nil {
		return nil, fmt.Errorf("set schedule %.80q: %w", r.GetSchedule().GetName(), err)
	}
	if r.GetDeclare() {
		return answerSchedule(s.engine.DeclareSchedule(ctx, schedule))
	}
	return answerSchedule(s.engine.PutSchedule(ctx, schedule))
}

func (s *schedulesServer) PauseSchedule(ctx context.Context, r *pb.PauseScheduleRequest) (*pb.Schedule, error) {
	return answerSchedule(s.engine.PauseSchedule(ctx, r.GetName()))
}

func (s *schedulesServer) ResumeSchedule(ctx context.Context, r *pb.ResumeScheduleRequest) (*pb.Schedule, error) {
	return answerSchedule(s.engine.ResumeSchedule(ctx, r.GetName()))
}

func (s *schedulesServer) DeleteSchedule(ctx context.Context, r *pb.DeleteScheduleRequest) (*pb.DeleteScheduleResponse, error) {
	if err := s.engine.DeleteSchedule(ctx, r.GetName()); err != nil {
		return nil, err
	}
	return &pb.DeleteScheduleResponse{}, nil
}

func (s *schedulesServer) TriggerSchedule(ctx context.Context, r *pb.TriggerScheduleRequest) (*pb.TriggerScheduleResponse, error) {
	f, err := s.engine.TriggerSchedule(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoFiring(&f), nil
}

func (s *schedulesServer) BackfillSchedule(ctx context.Context, r *pb.BackfillScheduleRequest) (*pb.BackfillScheduleResponse, error) {
	b, err := pbconv.BackfillFromProto(r)
	if err != nil {
		return nil, fmt.Errorf("backfill schedule %.80q: %w", r.GetName(), err)
	}
	report, err := s.engine.BackfillSchedule(ctx, b)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoBackfillReport(&report), nil
}
