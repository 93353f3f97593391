package setup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/parser"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/bootstrap"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const kubeadm = "kubeadm"

// Manager serves what a host sets up its control plane from.
type Manager interface {
	ControlPlaneSetup(ctx context.Context, request protocol.ControlPlaneSetupRequest) (protocol.ControlPlaneSetup, error)
}

// Files writes files of bootstrap data; see bootstrap.LocalExecutor.
type Files interface {
	// WriteFiles writes them, and records in the folder of the bootstrap what a reset undoes.
	WriteFiles(ctx context.Context, folder string, config *bootstrapdata.Config) error
}

// Setup sets up a control plane. All fields but Root are required.
type Setup struct {
	// Root replaces "/".
	Root string
	// Files writes the files.
	Files Files
	// Manager returns the manager to ask.
	Manager func() Manager
	// Commands runs kubeadm.
	Commands oscommand.Runner
	// Hostname returns the name of this host.
	Hostname func() (string, error)
}

// ControlPlane asks the manager, writes the files and has kubeadm make certificates, kubeconfigs
// and manifests. operation is the ID of the EtcdRestore.
func (s Setup) ControlPlane(ctx context.Context, operation string) error {
	got, err := s.Manager().ControlPlaneSetup(ctx, protocol.ControlPlaneSetupRequest{ID: operation})
	if err != nil {
		return err
	}
	claim, _, _ := strings.Cut(operation, ".")
	config, err := s.files(got, claim)
	if err != nil {
		return err
	}
	job := state.Operation{Operation: protocol.Operation{Type: protocol.OperationBootstrap, ID: claim}}
	if err := s.Files.WriteFiles(ctx, job.Folder(), config); err != nil {
		return err
	}
	return s.phases(ctx, []string{"certs", "all"}, []string{"kubeconfig", "admin"}, []string{"kubeconfig", "controller-manager"},
		[]string{"kubeconfig", "scheduler"}, []string{"control-plane", "all"}, []string{"etcd", "local"})
}

// Kubelet has kubeadm set up and start the kubelet.
func (s Setup) Kubelet(ctx context.Context) error {
	return s.phases(ctx, []string{"kubeconfig", "kubelet"}, []string{"kubelet-start"})
}

// phases runs phases of kubeadm init.
func (s Setup) phases(ctx context.Context, phases ...[]string) error {
	for _, phase := range phases {
		command := slices.Concat([]string{kubeadm, "init", "phase"}, phase, []string{"--config=" + filepath.Join(s.Root, protocol.KubeadmConfigPath)})
		if _, err := s.Commands.Run(ctx, "", command...); err != nil {
			return fmt.Errorf("running kubeadm init phase %s: %w", strings.Join(phase, " "), err)
		}
	}
	return nil
}

// files returns the configuration with the files to write. A file that bootstrap data appends to is left alone: the host
// has the text already.
func (s Setup) files(got protocol.ControlPlaneSetup, claim string) (*bootstrapdata.Config, error) {
	name, err := s.Hostname()
	if err != nil {
		return nil, fmt.Errorf("asking for the name of this host: %w", err)
	}
	variables, err := bootstrap.Variables(s.Root, claim, name)
	if err != nil {
		return nil, err
	}
	all := &bootstrapdata.Config{}
	for _, document := range []struct{ what, data, format string }{
		{"the bootstrap data", string(got.BootstrapData), got.Format},
		{"kubeadm's configuration", got.KubeadmConfig, protocol.FormatCloudConfig},
	} {
		config, _, err := parser.Parse([]byte(document.data), document.format, variables)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", document.what, err)
		}
		all.Files = append(all.Files, config.Files...)
	}
	all.Files = slices.DeleteFunc(all.Files, func(f bootstrapdata.File) bool { return f.Append })
	if !slices.ContainsFunc(all.Files, func(f bootstrapdata.File) bool { return f.Path == protocol.KubeadmConfigPath }) {
		return nil, errors.New("the manager sent no configuration of kubeadm")
	}
	return all, nil
}
