package native

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
)

type schedulesServer struct {
	pb.UnimplementedSchedulesServiceServer
	*GRPC
}

func answerSchedule(s gq.Schedule, err error) (*pb.Schedule, error) {
	if err != nil {
		return nil, err
	}
	return wire.ProtoSchedule(&s), nil
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
		answer.Schedules[i] = wire.ProtoSchedule(&all[i])
	}
	return answer, nil
}

func (s *schedulesServer) SetSchedule(ctx context.Context, r *pb.SetScheduleRequest) (*pb.Schedule, error) {
	schedule, err := wire.Bases(s.base(ctx)).Schedule(r.GetSchedule())
	if err != nil {
		return nil, fmt.Errorf("set schedule %.80q: %w", r.GetSchedule().GetName(), err)
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
