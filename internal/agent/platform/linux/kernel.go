package linux

import "golang.org/x/sys/unix"

type systemKernel struct{}

func (systemKernel) SetHostname(name string) error { return unix.Sethostname([]byte(name)) }

func (systemKernel) Unmount(path string) error {
	return unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

func (systemKernel) Kill(pid int) error { return unix.Kill(pid, unix.SIGKILL) }
