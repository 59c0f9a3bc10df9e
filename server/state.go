package server

import (
	"cmp"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store/local"
)

// state returns what the server knows about itself.
func (a *door) state(cfg *config.Config) gq.ServerState {
	var s gq.ServerState
	if a.certificates != nil {
		s.CertificateExpires, s.CertificateProblem = a.certificates.State()
	}
	if cfg.Backup.Dir != "" {
		s.Backups = true
		s.LastBackup, _ = local.LastBackup(cfg.Backup.Dir) // what cannot be read is no backup
	}
	return s
}

// processMetrics describes the process, its certificate and its backups.
func (a *door) processMetrics(cfg *config.Config, release string) []prometheus.Collector {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "gq_build_info", Help: "1, with the version of the server and of Go.",
		ConstLabels: prometheus.Labels{"version": cmp.Or(release, "unknown"), "goversion": runtime.Version()},
	})
	build.Set(1)
	all := []prometheus.Collector{build, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector()}
	at := func(name, help string, value func(gq.ServerState) time.Time) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if t := value(a.state(cfg)); !t.IsZero() {
				return float64(t.Unix())
			}
			return 0
		}))
	}
	if cfg.Backup.Dir != "" {
		at("gq_backup_last_timestamp_seconds", "When the newest backup in the directory for backups was taken; 0 if there is none.",
			func(s gq.ServerState) time.Time { return s.LastBackup })
	}
	if a.certificates != nil {
		at("gq_certificate_expiry_timestamp_seconds", "When the certificate in use expires.",
			func(s gq.ServerState) time.Time { return s.CertificateExpires })
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gq_certificate_bad", Help: "1 if the certificate files on disk cannot be used and the last good ones stay in use.",
		}, func() float64 {
			if a.state(cfg).CertificateProblem != "" {
				return 1
			}
			return 0
		}))
	}
	return all
}
