package snapshotrelay

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
)

// Endpoints are the addresses, HOST:PORT, to which the manager carries connections.
type Endpoints []string

// ParseEndpoints returns an error for what is no HOST:PORT.
func ParseEndpoints(list []string) (Endpoints, error) {
	for _, text := range list {
		host, port, err := net.SplitHostPort(text)
		if number, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || number == 0 || host == "" {
			return nil, fmt.Errorf("%.256q is no HOST:PORT", text)
		}
	}
	return list, nil
}

// Check returns the address of a storage, HOST:PORT, from its URL. It returns an error, which says what to do,
// unless the manager carries connections there.
func (e Endpoints) Check(endpoint string) (address string, err error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("the endpoint %.256q is no URL of a storage", endpoint)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	address = net.JoinHostPort(u.Hostname(), port)
	if !slices.Contains(e, address) {
		return "", fmt.Errorf("the manager carries no connections to %s: an administrator of the management cluster may add it to --snapshot-relay-endpoints", address)
	}
	return address, nil
}
