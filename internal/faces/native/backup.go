package native

import (
	"context"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/wire"
)

func (s *adminServer) CreateBackup(ctx context.Context, _ *pb.CreateBackupRequest) (*pb.Backup, error) {
	b, err := s.options.Admin.Backup(ctx)
	if err != nil {
		return nil, err
	}
	return pbconv.ProtoBackup(&b), nil
}

func (h *HTTP) createBackup(ctx context.Context, _ *httpx.None, _ *emptyBody) (*httpx.Answer[wire.Backup], error) {
	b, err := h.options.Admin.Backup(ctx)
	if err != nil {
		return nil, err
	}
	return httpx.OK(wire.BackupOf(&b)), nil
}
