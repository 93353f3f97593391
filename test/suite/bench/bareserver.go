package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/ports"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/process"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

// serveBare runs a bare server until ctx ends. It has a process of its own, so that its memory can be measured. args are
// an address and the files of a certificate and of its key.
func serveBare(ctx context.Context, args []string) error {
	const arguments = 3
	if len(args) != arguments {
		return errors.New("serving bare connections takes an address, a certificate and a key")
	}
	return bare.Server{Address: args[0], Certificate: args[1], Key: args[2]}.Run(ctx)
}

// bareServer is the process of a bare server.
type bareServer struct {
	client  bare.Client
	process *process.Process
	ports   ports.Set
	folder  string
	// connections are the connections that connect opened.
	connections []*bare.Connection
}

// removeAuditWebhook removes the webhook that records who creates and changes hosts. The manager's own requests do not pass
// through it, so bare ones must not either: they are also made when the manager has ended.
func (g *rig) removeAuditWebhook(ctx context.Context) error {
	all := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	if err := g.admin.List(ctx, all); err != nil {
		return fmt.Errorf("listing webhooks: %w", err)
	}
	for i := range all.Items {
		configuration := &all.Items[i]
		configuration.Webhooks = slices.DeleteFunc(configuration.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return strings.HasPrefix(w.Name, "audit.elementalhost.")
		})
		if err := g.admin.Update(ctx, configuration); err != nil {
			return fmt.Errorf("removing the audit webhook: %w", err)
		}
	}
	return nil
}

// startBare starts a bare server. env is its whole environment.
func (g *rig) startBare(ctx context.Context, env ...string) (_ *bareServer, err error) {
	s := &bareServer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.folder, err = os.MkdirTemp("", "elemental-bench-"); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	authority, err := pki.NewAuthority("bench", time.Now())
	if err != nil {
		return nil, err
	}
	serving, err := authority.Server("bare")
	if err != nil {
		return nil, err
	}
	user, err := authority.Client("bare")
	if err != nil {
		return nil, err
	}
	certificate, key := filepath.Join(s.folder, "tls.crt"), filepath.Join(s.folder, "tls.key")
	for file, content := range map[string][]byte{certificate: serving.Certificate, key: serving.Key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing a certificate: %w", err)
		}
	}
	port, err := s.ports.Reserve()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	command := g.options.role(roleBare, address, certificate, key)
	s.process, err = process.Start(process.Spec{
		Name: "bare server", Path: command[0], Args: command[1:], Env: env,
		Dir: s.folder, Log: filepath.Join(s.folder, "log"),
	})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Certificate)
	own, err := tls.X509KeyPair(user.Certificate, user.Key)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	s.client = bare.Client{URL: "https://" + address, TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13}}
	return s, g.until(ctx, "the bare server", func(ctx context.Context) (bool, error) {
		c, err := s.client.Connect(ctx)
		if err == nil {
			c.Close()
		}
		select {
		case <-s.process.Done():
			return false, s.process.Err()
		default:
			return err == nil, nil
		}
	})
}

// measured returns the server's process for measurements.
func (s *bareServer) measured() measure.Process { return measure.Process(s.process.PID()) }

// connect opens connections, atOnce at a time, and calls after for each.
func (s *bareServer) connect(ctx context.Context, count, atOnce int, after func(ctx context.Context, i int) error) error {
	first := len(s.connections)
	s.connections = append(s.connections, make([]*bare.Connection, count)...)
	return bare.Each(ctx, count, atOnce, func(ctx context.Context, i int) error {
		c, err := s.client.Connect(ctx)
		if err != nil {
			return err
		}
		s.connections[first+i] = c
		return after(ctx, i)
	})
}

// check returns an error if a connection was lost.
func (s *bareServer) check() error {
	for _, c := range s.connections {
		if err := c.Err(); err != nil {
			return fmt.Errorf("a bare connection was lost: %w", err)
		}
	}
	return nil
}

// close stops the server and closes all connections.
func (s *bareServer) close() error {
	if s.process != nil {
		s.process.Kill()
	}
	for _, c := range s.connections {
		if c != nil {
			c.Close()
		}
	}
	s.ports.Release()
	return os.RemoveAll(s.folder)
}
