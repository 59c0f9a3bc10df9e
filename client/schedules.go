package client

import (
	"context"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/wire"
)

func decodeSchedule(m *pb.Schedule) (gq.Schedule, error) { return wire.Bases(nil).Schedule(m) }

func readSchedule(m *pb.Schedule, err error) (gq.Schedule, error) {
	if err != nil {
		return gq.Schedule{}, err
	}
	return read("schedule", m, decodeSchedule)
}

// Schedules lists all schedules by name.
func (c *Client) Schedules(ctx context.Context) ([]gq.Schedule, error) {
	m, err := invoke(ctx, c, repeat, c.schedules.ListSchedules, &pb.ListSchedulesRequest{})
	if err != nil {
		return nil, err
	}
	return readAll("list schedules", m.GetSchedules(), decodeSchedule)
}

// Schedule reads a schedule. The error is [gq.ErrNotFound] for an unknown one.
func (c *Client) Schedule(ctx context.Context, name string) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, repeat, c.schedules.GetSchedule, &pb.GetScheduleRequest{Name: name}))
}

// PutSchedule makes a schedule, or gives an existing one another definition.
func (c *Client) PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, once, c.schedules.SetSchedule, &pb.SetScheduleRequest{Schedule: wire.ProtoSchedule(&s)}))
}

// PauseSchedule keeps a schedule from firing.
func (c *Client) PauseSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, once, c.schedules.PauseSchedule, &pb.PauseScheduleRequest{Name: name}))
}

// ResumeSchedule ends a pause. Slots that passed meanwhile are not made up for.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, once, c.schedules.ResumeSchedule, &pb.ResumeScheduleRequest{Name: name}))
}

// DeleteSchedule removes a schedule. Jobs it has submitted stay.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	_, err := invoke(ctx, c, once, c.schedules.DeleteSchedule, &pb.DeleteScheduleRequest{Name: name})
	return err
}
