//go:build e2e

package cloudinit

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

// prepare sets up a container for both programs: the files that documents expect, and a kubeadm
// that records its arguments and environment.
const prepare = `set -e
mkdir -p -m 750 /etc/sudoers.d
echo '@includedir /etc/sudoers.d' >/etc/sudoers
cat >/usr/local/sbin/kubeadm <<'END'
#!/bin/sh
echo "kubeadm $* in $PWD, umask $(umask), HOME $HOME" >>/var/observed
grep -h name: /run/kubeadm/* >>/var/observed
true
END
chmod 755 /usr/local/sbin/kubeadm
cat >/etc/cloud/cloud.cfg <<'END'
users: []
preserve_hostname: true
datasource_list: [NoCloud]
cloud_init_modules: [bootcmd, write-files, users-groups]
cloud_config_modules: [set-passwords, runcmd]
ssh_deletekeys: false
ssh_genkeytypes: []
cloud_final_modules: [write-files-deferred, scripts-user]
system_info: {distro: debian}
network: {config: disabled}
END
rm -f /etc/cloud/cloud.cfg.d/*
mkdir -p /var/lib/cloud/seed/nocloud
cat >/var/lib/cloud/seed/nocloud/meta-data <<'END'
instance-id: i-oracle
local-hostname: edge-1
hostname: edge-1
END
`

// list prints every file with type, mode, owner and hash. Comments in the file of sudo rules are
// left out, and SSH keys are sorted, because cloud-init writes them in random order.
const list = `find / -xdev \( -path /var/lib/cloud -o -path '/run/cloud-init*' -o -path /var/log/cloud-init\* -o -path /operation -o -path /etc/cloud \
  -o -path /var/cache -o -path /tmp -o -name __pycache__ -o -name '*-' -o -name '*.lock' -o -path /document \) -prune -o -printf '%y %m %u:%g %p %l\n'
find / -xdev -newer /stamp -type f \( -path /var/lib/cloud -o -path '/var/log/cloud-init*' -o -path '/run/cloud-init*' -o -path '/operation*' -o -path '/etc/cloud*' \
  -o -path '/var/cache*' -o -path '/tmp*' -o -name '*.pyc' -o -name '*-' -o -name '*.lock' -o -path '/etc/sudoers.d/*' -o -name authorized_keys \) -prune -o -newer /stamp -type f -print | grep -v ^/var/lib/cloud/ | xargs -r sha256sum
grep -hvs '^#\|^$' /etc/sudoers.d/90-cloud-init-users
cat /home/*/.ssh/authorized_keys ~root/.ssh/authorized_keys 2>/dev/null | sort -s
true`

// documents returns the documents of bootstrap providers, and documents for special cases.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{
		"commands": "#cloud-config\nbootcmd:\n- echo boot $INSTANCE_ID >> /var/observed\nruncmd:\n- env | cut -d= -f1 | grep -v SHLVL | sort >> /var/observed\n- pwd >> /var/observed\n" +
			"- 'false'\n- X=1; cd /etc; umask 077\n- [sh, -c, 'echo \"$0 $1\" $PWD', a, $HOME]\n- echo $X $PWD > /var/private\n- exit 3\n- echo never >> /var/observed\n",
		"syntax":  "#cloud-config\nruncmd:\n- echo first >> /var/observed\n- echo 'unbalanced\n- echo never >> /var/observed\n",
		"script":  "#!/bin/bash\necho \"script in $PWD, ${BASH_VERSION:+bash}\" >> /var/observed\nexit 4\n",
		"message": message(),
		"credentials": "#cloud-config\ncloud_config_modules: [ssh, set-passwords, runcmd]\ndisable_root: false\nssh_authorized_keys: [ssh-ed25519 AAAA me, no key]\nusers:\n- {name: one, lock_passwd: false, ssh_authorized_keys: [nonsense, 'from=\"a b\" ssh-rsa BBBB me']}\n" +
			"chpasswd:\n  users:\n  - {name: one, password: $6$abcdefgh$ijkl}\n  list: ['daemon:$6$abcdefgh$mnop']\n",
		"variables": "## template: jinja\n#cloud-config\nruncmd:\n- echo {{ v1.distro }} {{ v1.distro_version }} {{ v1.distro_release }} {{ v1.variant }} {{ v1.machine }} {{ v1.kernel_release }} >> /var/observed\n" +
			"- echo {{ v1.cloud_name }} {{ v1.platform }} {{ v1.region }} {{ v1.instance_id }} {{ ds.meta_data.hostname }} {{ v1.local_hostname }} >> /var/observed\n",
		"files": "#cloud-config\ngroups: [ops]\nusers:\n- {name: one, groups: ops, shell: /bin/bash, ssh_authorized_keys: [ssh-ed25519 AAAA one, ssh-ed25519 BBBB two], sudo: 'ALL=(ALL) ALL'}\n- {name: two, lock_passwd: false, passwd: $6$abcdefgh$ijkl, uid: 2002, no_create_home: true}\n" +
			"write_files:\n- {path: /a/b/c, content: \"x\\ty\", permissions: '0600'}\n- {path: /sticky, permissions: '1777'}\n- {path: /suid, permissions: '4755'}\n- {path: /zero, permissions: '0000'}\n- {path: /odd, permissions: u=rw}\n" +
			"- {path: /decimal, permissions: 416}\n- {path: /etc/motd, append: true, content: more, permissions: '0664', owner: 'root:adm'}\n- {path: /owner, owner: daemon}\n- {path: /bin64, content: !!binary /+8=}\n- {path: /late, defer: true, owner: 'one:ops', content: x}\n",
	}
	for _, name := range []string{"cabpk-worker", "cabpk-join", "cabpk-init", "k3s-server", "rke2-agent"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "internal", "agent", "bootstrapdata", "parser", "testdata", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = without(string(text), "ntp", "disk_setup", "fs_setup", "mounts")
	}
	return out
}

// without removes keys that need disks or the network.
func without(text string, keys ...string) string {
	var out strings.Builder
	skip := false
	for line := range strings.Lines(text) {
		if name, _, found := strings.Cut(line, ":"); found && line[0] >= 'a' && line[0] <= 'z' {
			skip = slices.Contains(keys, name)
		}
		if !skip {
			out.WriteString(line)
		}
	}
	return out.String()
}

func message() string {
	const script = "#!/bin/sh\necho NAME >> /var/observed\n"
	out := "Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n"
	for _, p := range []string{
		"Content-Type: text/x-shellscript\nContent-Disposition: attachment; filename=\"script.sh\"\n\n" + strings.Replace(script, "NAME", "script", 1),
		"Content-Type: text/cloud-config\n\nruncmd:\n- echo runcmd >> /var/observed\n",
		"Content-Type: text/x-shellscript\n\n" + strings.Replace(script, "NAME", "third; exit 5", 1),
		"\n## template: jinja\n#!/bin/sh\necho {{ v1.local_hostname }} >> /var/observed\n",
		"Content-Type: text/plain\nMerge-Type: list(append)+dict(recurse_array)+str()\n\n#cloud-config\nruncmd:\n- echo merged >> /var/observed\n",
	} {
		out += "--b\n" + p + "\n"
	}
	return out + "--b--\n"
}

// build builds the host image with cloud-init. Packages come from this machine's mirror and are
// installed in the image only.
func build(ctx context.Context, t *testing.T) string {
	t.Helper()
	l, err := lab.New(lab.Options{Name: "oracle", Subnet: "172.30.250.0/24", Out: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.WithoutCancel(ctx), false); err != nil {
			t.Error(err)
		}
	})
	image, err := l.Prepare(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	status := docker(ctx, t, "run", "--rm", "--network", "none", "--entrypoint", "cat", image, "/var/lib/dpkg/status")
	archives := filepath.Join(dir, "archives")
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"status": status + "\n", "Dockerfile": "FROM " + image + "\nCOPY archives/*.deb /debs/\nRUN apt-get --quiet --yes --no-install-recommends install /debs/*.deb && rm -rf /debs\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	command(ctx, t, "apt-get", "--quiet", "--yes", "-o", "Dir::State::status="+filepath.Join(dir, "status"), "-o", "Dir::Cache::archives="+archives,
		"-o", "Debug::NoLocking=1", "install", "--download-only", "--no-install-recommends", "cloud-init")
	const tag = "elemental-oracle"
	docker(ctx, t, "build", "--quiet", "--network", "none", "--tag", tag, dir)
	t.Cleanup(func() { docker(context.WithoutCancel(ctx), t, "image", "rm", "--force", tag) })
	return tag
}

func command(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := shell.Run(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func docker(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	return command(ctx, t, append([]string{"docker"}, args...)...)
}

// host runs a document in a new container and returns the lines of list that changed.
func host(ctx context.Context, t *testing.T, image, tool, document, run string) []string {
	t.Helper()
	box := docker(ctx, t, "run", "--detach", "--rm", "--hostname", "edge-1", "--network", "none", "--entrypoint", "sleep", image, "infinity")
	t.Cleanup(func() { docker(context.WithoutCancel(ctx), t, "rm", "--force", "--volumes", box) })
	file := filepath.Join(t.TempDir(), "document")
	if err := os.WriteFile(file, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	inside := func(script string) string { return docker(ctx, t, "exec", box, "/bin/sh", "-c", script) }
	inside(prepare)
	docker(ctx, t, "cp", tool, box+":/usr/local/sbin/apply")
	docker(ctx, t, "cp", file, box+":/document")
	inside("touch -d '1 second ago' /stamp")
	before := strings.Split(inside(list), "\n")
	t.Log(inside(run))
	known := map[string]bool{}
	for _, line := range before {
		known[line] = true
	}
	changed := map[string]bool{}
	for line := range strings.SplitSeq(inside(list), "\n") {
		if !known[line] {
			changed[line] = true
		}
	}
	changed["observed:\n"+inside("cat /var/observed 2>&1; ls -l /run/cluster-api | sed 1d | cut -d' ' -f1,3,4,9")] = true
	return slices.Sorted(maps.Keys(changed))
}

// TestOracle expects that the agent changes a host exactly as cloud-init does.
func TestOracle(t *testing.T) {
	ctx := t.Context()
	image := build(ctx, t)
	tool := filepath.Join(t.TempDir(), "apply")
	if _, err := (shell.Command{Args: []string{"go", "build", "-o", tool, "./apply"}, Env: []string{"CGO_ENABLED=0"}}).Run(ctx); err != nil {
		t.Fatal(err)
	}
	for name, text := range documents(t) {
		t.Run(name, func(t *testing.T) {
			want := host(ctx, t, image, tool, text, `cp /document /var/lib/cloud/seed/nocloud/user-data
(cloud-init init --local; cloud-init init; cloud-init modules --mode=config; cloud-init modules --mode=final) >/var/log/cloud-init-stages.log 2>&1
tail -n 5 /var/log/cloud-init-stages.log`)
			got := host(ctx, t, image, tool, text, "apply execute /operation cloud-config /document 2>&1; true")
			if len(want) < 2 {
				t.Fatalf("cloud-init changed nothing: %q", want)
			}
			for _, line := range got {
				if !slices.Contains(want, line) {
					t.Errorf("only the agent has: %s", line)
				}
			}
			for _, line := range want {
				if !slices.Contains(got, line) {
					t.Errorf("only cloud-init has: %s", line)
				}
			}
		})
	}
}
