package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/repository"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// Workstation is the machine of an administrator of a management cluster. It is a folder of this
// machine, with a home and with kubectl and clusterctl in its PATH. It has no file of this machine's
// user.
type Workstation struct {
	// Home is the administrator's home, and the folder in which commands run.
	Home string
	// Programs is the folder that the administrator installs programs in. It is in PATH.
	Programs string
	// Clusterctl has the entries of Cluster API's providers in clusterctl.yaml, and CertManager the
	// section of cert-manager: without the Internet clusterctl installs both from this machine.
	Clusterctl, CertManager string

	environment []string
}

// Workstation returns the workstation of the management cluster, which must run, and makes its
// folder if it is missing. By ssh it reaches hosts as root, without sshd: a program of this name
// runs commands in the hosts' containers. There is a program sudo too, which needs no password.
func (e Empty) Workstation(ctx context.Context, hosts ...*engine.Host) (*Workstation, error) {
	tools, err := e.Tools(ctx)
	if err != nil {
		return nil, err
	}
	module, err := e.sources.findCAPI(ctx)
	if err != nil {
		return nil, err
	}
	r, err := e.repository(ctx, module)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := os.ReadFile(e.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	home := filepath.Join(e.options.State, "home")
	w := &Workstation{Home: home, Programs: filepath.Join(home, "bin"), Clusterctl: r.Providers(), CertManager: r.CertManager()}
	for file, text := range map[string]string{
		filepath.Join(home, ".kube", "config"): string(kubeconfig),
		filepath.Join(w.Programs, "ssh"):       sshProgram(hosts),
		filepath.Join(w.Programs, "sudo"):      "#!/bin/sh\nexec \"$@\"\n",
	} {
		if err := writeFile(file, []byte(text)); err != nil {
			return nil, err
		}
	}
	errs := []error{os.Chmod(filepath.Join(home, ".kube", "config"), 0o600)}
	for _, name := range []string{"ssh", "sudo"} {
		errs = append(errs, os.Chmod(filepath.Join(w.Programs, name), 0o755))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("setting permissions: %w", err)
	}
	w.environment = []string{
		"HOME=" + home, "XDG_CONFIG_HOME=", "XDG_CONFIG_DIRS=", "KUBECONFIG=",
		"PATH=" + strings.Join([]string{w.Programs, tools, os.Getenv("PATH")}, ":"),
		// There is no Internet for newer versions.
		"CLUSTERCTL_DISABLE_VERSIONCHECK=true", "GOPROXY=off",
	}
	return w, nil
}

// sshProgram returns a script that runs a command on a host as ssh does.
func sshProgram(hosts []*engine.Host) string {
	var text strings.Builder
	text.WriteString("#!/bin/sh\n# ssh root@ADDRESS COMMAND...\ncase $1 in\n")
	for _, host := range hosts {
		fmt.Fprintf(&text, "root@%s) container=%s ;;\n", host.Address, host.Container())
	}
	text.WriteString("*) echo \"ssh: there is no host $1\" >&2; exit 255 ;;\nesac\nshift\nexec docker exec --interactive \"$container\" \"$@\"\n")
	return text.String()
}

// Output is what a script prints.
type Output struct{ Stdout, Stderr string }

// Run runs a script of bash. It fails if a command of the script fails.
func (w *Workstation) Run(ctx context.Context, script string) (Output, error) {
	var stderr strings.Builder
	stdout, err := shell.Command{
		Args: []string{"bash", "-o", "errexit", "-o", "pipefail", "-c", script}, Dir: w.Home, Env: w.environment, Stderr: &stderr,
	}.Run(ctx)
	return Output{Stdout: stdout, Stderr: stderr.String()}, err
}

// ReleaseFolder returns the folder of a release of this provider, as the guide names it.
func (w *Workstation) ReleaseFolder(version string) string {
	return filepath.Join(w.Home, "elemental", repository.Elemental().Label, version)
}
