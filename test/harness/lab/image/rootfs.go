package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

const (
	suite      = "bookworm"
	mainMirror = "http://deb.debian.org/debian"
)

// packages returns the Debian packages of a lab host.
func packages() []string {
	return strings.Fields(`systemd systemd-sysv dbus iproute2 iptables nftables conntrack socat ethtool kmod
		ca-certificates runc procps util-linux mount curl`)
}

// iptables returns patterns of the programs and plugins that kube-proxy calls.
func iptables() []string {
	return []string{
		"usr/sbin/iptables*", "usr/sbin/ip6tables*", "usr/sbin/xtables-nft-multi", "usr/sbin/nft",
		"usr/lib/*-linux-gnu/xtables/*.so", "etc/alternatives/ip*tables*",
	}
}

// rootfs returns two tar files: the Debian system of a lab host, and the part of it that
// kube-proxy needs.
func (b Builder) rootfs(ctx context.Context) (system, proxy string, err error) {
	folder := filepath.Join(b.Cache, "rootfs-"+key(suite, packages(), iptables(), architecture, rootfsVersion))
	system, proxy = filepath.Join(folder, "system.tar"), filepath.Join(folder, "iptables.tar")
	if _, err := os.Stat(folder); err == nil {
		return system, proxy, nil
	}
	if os.Getuid() != 0 {
		return "", "", errors.New("making the root file system of hosts takes root")
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		if err := engine.Install(ctx, "debootstrap"); err != nil {
			return "", "", fmt.Errorf("getting debootstrap: %w", err)
		}
	}
	work := func(temp string) error { return b.debootstrap(ctx, temp) }
	return system, proxy, b.Progress.Step("Installing Debian for hosts", func() error { return b.place(folder, work) })
}

// rootfsVersion is raised when debootstrap's result is treated differently.
const rootfsVersion = "1"

// debootstrap installs Debian into a folder and packs it there.
func (b Builder) debootstrap(ctx context.Context, folder string) error {
	root := filepath.Join(folder, "root")
	_, err := shell.Run(ctx, "debootstrap", "--variant=minbase", "--include="+strings.Join(packages(), ","),
		suite, root, mirror(os.DirFS("/etc/apt")))
	if err != nil {
		return fmt.Errorf("installing Debian: %w", err)
	}
	for _, empty := range []string{"etc/machine-id", "etc/hostname", "etc/resolv.conf"} {
		if err := os.WriteFile(filepath.Join(root, empty), nil, 0o644); err != nil {
			return fmt.Errorf("emptying %s: %w", empty, err)
		}
	}
	_, err = shell.Run(ctx, "systemctl", "--root="+root, "mask", "systemd-networkd.service", "systemd-networkd.socket",
		"systemd-resolved.service", "systemd-udevd.service", "systemd-udevd-control.socket",
		"systemd-udevd-kernel.socket", "systemd-logind.service", "console-getty.service", "getty@.service",
		"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer")
	if err != nil {
		return fmt.Errorf("masking units that have no use in a container: %w", err)
	}
	needed, err := closure(root, iptables()...)
	if err != nil {
		return fmt.Errorf("finding what iptables needs: %w", err)
	}
	pack := func(name string, args ...string) error {
		args = append([]string{"tar", "--create", "--file", filepath.Join(folder, name), "--directory", root}, args...)
		if _, err := shell.Run(ctx, args...); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		return nil
	}
	for i := range needed {
		needed[i] = "." + needed[i]
	}
	if err := pack("iptables.tar", append([]string{"--no-recursion"}, needed...)...); err != nil {
		return err
	}
	err = pack("system.tar", "--one-file-system", "--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*",
		"--exclude=./usr/share/doc/*", "--exclude=./usr/share/man/*", "--exclude=./usr/share/locale/*",
		"--exclude=./var/log/*", "--exclude=./dev/*", ".")
	if err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// mirror returns the URL from which apt on this machine gets the suite. apt is apt's configuration
// folder.
func mirror(apt fs.FS) string {
	files, _ := fs.Glob(apt, "sources.list.d/*")
	for _, name := range append(files, "sources.list") {
		file, err := apt.Open(name)
		if err != nil {
			continue
		}
		found := findMirror(bufio.NewScanner(file))
		_ = file.Close()
		if found != "" {
			return found
		}
	}
	return mainMirror
}

// findMirror reads a source list in one of apt's two formats.
func findMirror(lines *bufio.Scanner) string {
	var address string
	var suites []string
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch fields := strings.Fields(line); {
		case line == "":
			address, suites = "", nil
		case fields[0] == "deb":
			fields = slices.DeleteFunc(fields[1:], func(s string) bool { return strings.ContainsAny(s, "[]=") })
			if len(fields) > 1 && fields[1] == suite {
				return fields[0]
			}
		case fields[0] == "URIs:" && len(fields) > 1:
			address = fields[1]
		case fields[0] == "Suites:":
			suites = fields[1:]
		}
		if address != "" && slices.Contains(suites, suite) {
			return address
		}
	}
	return ""
}
