package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/worker"
)

// Sales are the arguments of ReportSales.
type Sales struct {
	Night string `json:"night"` // date of the night, such as 2030-01-31; the report is about the day before
}

// ReportSales mails the sales of a day to the owner.
var ReportSales = gq.NewKind[Sales, gq.None]("report.sales", gq.Resilient)

const (
	timeZone = "Europe/Berlin"
	owner    = "owner@example.org"
)

// scheduleNightly lets the report run at half past two. The queue fills in the date of each
// night. After an outage it reports the last night that was missed. A restart of the shop does
// not resume a schedule that somebody has paused.
func (s *Shop) scheduleNightly(ctx context.Context) error {
	_, err := s.Client.DeclareSchedule(ctx, gq.Schedule{
		Name: "nightly-sales", Cron: "30 2 * * *", TimeZone: timeZone,
		Overlap: gq.OverlapSkip, Missed: gq.MissedOnce,
		Job: ReportSales.With(Sales{Night: "{{slot_date}}"}),
	})
	return err
}

func (s *Shop) reportSales(ctx context.Context, job *worker.Job[Sales]) error {
	zone, err := time.LoadLocation(timeZone)
	if err != nil {
		return err
	}
	night, err := time.ParseInLocation(time.DateOnly, job.Args.Night, zone)
	if err != nil {
		return gq.Permanent(err, "bad_date")
	}
	day := night.AddDate(0, 0, -1)
	orders, cents, err := s.DB.Sales(ctx, day, night)
	if err != nil {
		return err
	}
	return s.Services.Mail(ctx, job.ID().String(), owner, "Sales of "+day.Format(time.DateOnly),
		fmt.Sprintf("%d orders, %d.%02d EUR", orders, cents/100, cents%100))
}
