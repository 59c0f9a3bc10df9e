package client

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// targetOf returns the gRPC target and dial options for an address. gRPC tries several addresses
// in order whenever it has to connect. It resolves a target with a scheme, such as
// dns:///host:port, itself.
func targetOf(address string) (target string, more []grpc.DialOption, err error) {
	all := strings.Split(address, ",")
	for i, one := range all {
		all[i] = strings.TrimSpace(one)
		err = errors.Join(err, checkAddress(all[i], len(all) > 1))
	}
	if err != nil || len(all) == 1 {
		return all[0], nil, err
	}
	servers := make([]resolver.Address, len(all))
	for i, one := range all {
		host, _, _ := net.SplitHostPort(one) // checkAddress has checked it
		servers[i] = resolver.Address{Addr: one, ServerName: host}
	}
	list := manual.NewBuilderWithScheme("gq")
	list.InitialState(resolver.State{Addresses: servers})
	return "gq:///" + all[0], []grpc.DialOption{grpc.WithResolvers(list)}, nil
}

// checkAddress rejects an invalid gRPC address.
func checkAddress(address string, several bool) error {
	switch scheme, _, found := strings.Cut(address, "://"); {
	case found && (scheme == "http" || scheme == "https"):
		return fmt.Errorf("%.80q is an HTTP address; give the gRPC address as HOST:PORT (default %s)", address, DefaultAddress)
	case (found || strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:")) && several:
		return fmt.Errorf("%.80q has a scheme, which only a single address may have; several addresses are HOST:PORT,HOST:PORT", address)
	case found || strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "unix-abstract:"):
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%.80q is not HOST:PORT, such as %s", address, DefaultAddress)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%.80q has the port %.20q, which is not between 1 and 65535", address, port)
	}
	if strings.ContainsAny(host, " \t\r\n/@?#") {
		return fmt.Errorf("%.80q is not HOST:PORT, such as %s", address, DefaultAddress)
	}
	return nil
}

// allLocal reports whether every server is on this machine.
func allLocal(address string) bool {
	for one := range strings.SplitSeq(address, ",") {
		if !local(strings.TrimSpace(one)) {
			return false
		}
	}
	return true
}
