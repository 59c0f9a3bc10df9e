package rpc

import (
	"time"

	"google.golang.org/grpc"
)

// DialWithin is Dial with one deadline for all calls, and for connecting, so that
// retries do not depend on the speed of the machine.
func DialWithin(addr, caller string, deadline time.Duration) (*grpc.ClientConn, error) {
	slowly := reconnect
	slowly.MinConnectTimeout = deadline
	return dial(addr, caller, func(string) time.Duration { return deadline }, mayRepeat, grpc.WithConnectParams(slowly))
}
