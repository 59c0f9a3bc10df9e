package client

import (
	"context"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
)

func decodeSchedule(m *pb.Schedule) (gq.Schedule, error) { return pbconv.Bases(nil).Schedule(m) }

func readSchedule(m *pb.Schedule, err error) (gq.Schedule, error) {
	if err != nil {
		return gq.Schedule{}, err
	}
	return read("schedule", m, decodeSchedule)
}

// Schedules lists all schedules, sorted by name.
func (c *Client) Schedules(ctx context.Context) ([]gq.Schedule, error) {
	m, err := invoke(ctx, c, repeat, c.schedules.ListSchedules, &pb.ListSchedulesRequest{})
	if err != nil {
		return nil, err
	}
	return readAll("list schedules", m.GetSchedules(), decodeSchedule)
}

// Schedule returns a schedule, or [gq.ErrNotFound].
func (c *Client) Schedule(ctx context.Context, name string) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, repeat, c.schedules.GetSchedule, &pb.GetScheduleRequest{Name: name}))
}

// PutSchedule creates or replaces a schedule.
func (c *Client) PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, once, c.schedules.SetSchedule, &pb.SetScheduleRequest{Schedule: pbconv.ProtoSchedule(&s)}))
}

// DeclareSchedule sets up a schedule at program start. It keeps settings that an operator has
// changed since the last declaration.
func (c *Client) DeclareSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, repeat, c.schedules.SetSchedule, &pb.SetScheduleRequest{Schedule: pbconv.ProtoSchedule(&s), Declare: true}))
}

// PauseSchedule stops a schedule from firing.
func (c *Client) PauseSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, once, c.schedules.PauseSchedule, &pb.PauseScheduleRequest{Name: name}))
}

// ResumeSchedule ends a pause. The firings missed meanwhile are skipped.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	return readSchedule(invoke(ctx, c, once, c.schedules.ResumeSchedule, &pb.ResumeScheduleRequest{Name: name}))
}

// TriggerSchedule submits a job of a schedule at once.
func (c *Client) TriggerSchedule(ctx context.Context, name string) (gq.Firing, error) {
	m, err := invoke(ctx, c, once, c.schedules.TriggerSchedule, &pb.TriggerScheduleRequest{Name: name})
	if err != nil {
		return gq.Firing{}, err
	}
	return read("trigger schedule", m, pbconv.FiringFromProto)
}

// BackfillSchedule submits the jobs of past slots that have none.
func (c *Client) BackfillSchedule(ctx context.Context, b gq.Backfill) (gq.BackfillReport, error) {
	m, err := invoke(ctx, c, repeat, c.schedules.BackfillSchedule, pbconv.ProtoBackfill(&b))
	if err != nil {
		return gq.BackfillReport{}, err
	}
	return read("backfill schedule", m, pbconv.BackfillReportFromProto)
}

// DeleteSchedule removes a schedule and keeps the jobs it submitted.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	_, err := invoke(ctx, c, once, c.schedules.DeleteSchedule, &pb.DeleteScheduleRequest{Name: name})
	return err
}
