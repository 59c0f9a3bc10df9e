package rpc

import (
	"time"

	"google.golang.org/grpc"
)

// DialWithin is Dial with one deadline for all calls, which a connection may take as
// well: what is retried does not depend on how fast the machine is.
func DialWithin(addr, caller string, deadline time.Duration) (*grpc.ClientConn, error) {
	slowly := reconnect
	slowly.MinConnectTimeout = deadline
	return dial(addr, caller, func(string) time.Duration { return deadline }, mayRepeat, grpc.WithConnectParams(slowly))
}
