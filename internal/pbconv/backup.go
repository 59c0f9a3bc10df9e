package pbconv

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// ProtoBackup encodes a backup.
func ProtoBackup(b *gq.Backup) *pb.Backup {
	return &pb.Backup{
		Generation: b.Generation, TakenAt: timestamppb.New(b.Time), LastEvent: b.LastEvent, Files: int64(b.Files), Bytes: b.Bytes,
		CopiedFiles: int64(b.CopiedFiles), CopiedBytes: b.CopiedBytes, Removed: int64(b.Removed),
	}
}

// BackupFromProto decodes a backup.
func BackupFromProto(m *pb.Backup) gq.Backup {
	return gq.Backup{
		Generation: m.GetGeneration(), Time: m.GetTakenAt().AsTime(), LastEvent: m.GetLastEvent(), Files: int(m.GetFiles()), Bytes: m.GetBytes(),
		CopiedFiles: int(m.GetCopiedFiles()), CopiedBytes: m.GetCopiedBytes(), Removed: int(m.GetRemoved()),
	}
}
