package enrol

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// checkTimeout bounds the question to the manager.
const checkTimeout = 5 * time.Second

// ErrUnreachable is returned by CheckServed if the manager could not be asked. Hosts may reach it
// all the same.
var ErrUnreachable = errors.New("the agent API could not be asked")

// CheckServed asks the agent API whether it serves the install script and an agent. It uses the
// proxy of the environment.
func (i *Enrolment) CheckServed(ctx context.Context) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(i.TrustBundle)) {
		return errors.New("the trustBundle of the agent configuration has no CA certificate")
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true,
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(i.Server, "/")+protocol.PathInstall, http.NoBody)
	if err != nil {
		return fmt.Errorf("reading the server URL: %w", err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusServiceUnavailable:
		return errors.New("the manager serves no agent: put elemental-agent-linux-amd64 or elemental-agent-linux-arm64 into a folder of its flag --agent-binaries")
	case http.StatusNotFound:
		return errors.New("the manager has no install script: its version is older than this plugin's")
	default:
		return fmt.Errorf("%w: it answers %s", ErrUnreachable, response.Status)
	}
}
