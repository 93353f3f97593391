package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/bare"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/bench/measure"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/embedded/pki"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/embedded/ports"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/embedded/process"
)

// serveBare runs a bare server until ctx ends: in a process of its own, as its memory is to be told from others'. Its
// arguments are an address and the files of a certificate and of its key.
func serveBare(ctx context.Context, args []string) error {
	const arguments = 3
	if len(args) != arguments {
		return errors.New("serving bare connections takes an address, a certificate and a key")
	}
	return bare.Server{Address: args[0], Certificate: args[1], Key: args[2]}.Run(ctx)
}

// bareServer is a bare server's process.
type bareServer struct {
	client  bare.Client
	process *process.Process
	ports   ports.Set
	folder  string
	// connections are those that connect has made.
	connections []*bare.Connection
}

// startBare starts a bare server, with variables beside those that it has anyway: none.
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

// measured is the server's process, for its figures.
func (s *bareServer) measured() measure.Process { return measure.Process(s.process.PID()) }

// connect makes connections and does something after each, with some at a time.
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

// check tells whether all connections are still there.
func (s *bareServer) check() error {
	for _, c := range s.connections {
		if err := c.Err(); err != nil {
			return fmt.Errorf("a bare connection was lost: %w", err)
		}
	}
	return nil
}

// close ends the server and all connections.
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
