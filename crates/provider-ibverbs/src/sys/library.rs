//! The library: found at run time, with the functions of the versions that this crate knows.
use super::types::*;
use crate::Unavailable;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Defines the table of functions: their names, the version of the library's ABI that has them, and
/// their types. `optional` ones may be missing.
macro_rules! functions {
    (
        $(needed $name:ident @ $version:literal ($($type:ty),*) $(-> $result:ty)?;)*
        $(optional $oname:ident @ $oversion:literal ($($otype:ty),*) $(-> $oresult:ty)?;)*
    ) => {
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            $(pub(super) $oname: Option<unsafe extern "C" fn($($otype),*) $(-> $oresult)?>,)*
        }

        impl Functions {
            fn find(handle: &Handle) -> Result<Functions, Symbol> {
                Ok(Functions {
                    $($name: {
                        let symbol = Symbol(stringify!($name), $version);
                        let found = handle.symbol(symbol).ok_or(symbol)?;
                        // SAFETY: the symbol of this name and version is a function of this type,
                        // as the header has said since that version.
                        unsafe {
                            std::mem::transmute::<
                                NonNull<c_void>,
                                unsafe extern "C" fn($($type),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                    $($oname: {
                        let found = handle.symbol(Symbol(stringify!($oname), $oversion));
                        // SAFETY: as above; a function pointer that may be null has this size.
                        unsafe {
                            std::mem::transmute::<
                                Option<NonNull<c_void>>,
                                Option<unsafe extern "C" fn($($otype),*) $(-> $oresult)?>,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    needed ibv_get_device_list @ "IBVERBS_1.1" (*mut c_int) -> *mut *mut ibv_device;
    needed ibv_free_device_list @ "IBVERBS_1.1" (*mut *mut ibv_device);
    needed ibv_get_device_name @ "IBVERBS_1.1" (*mut ibv_device) -> *const c_char;
    needed ibv_open_device @ "IBVERBS_1.1" (*mut ibv_device) -> *mut ibv_context;
    needed ibv_close_device @ "IBVERBS_1.1" (*mut ibv_context) -> c_int;
    needed ibv_query_device @ "IBVERBS_1.1" (*mut ibv_context, *mut ibv_device_attr) -> c_int;
    needed ibv_query_port @ "IBVERBS_1.1" (*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    needed ibv_get_async_event @ "IBVERBS_1.1" (*mut ibv_context, *mut ibv_async_event) -> c_int;
    needed ibv_ack_async_event @ "IBVERBS_1.1" (*mut ibv_async_event);
    needed ibv_alloc_pd @ "IBVERBS_1.1" (*mut ibv_context) -> *mut ibv_pd;
    needed ibv_dealloc_pd @ "IBVERBS_1.1" (*mut ibv_pd) -> c_int;
    needed ibv_reg_mr @ "IBVERBS_1.1" (*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    needed ibv_dereg_mr @ "IBVERBS_1.1" (*mut ibv_mr) -> c_int;
    needed ibv_create_comp_channel @ "IBVERBS_1.0" (*mut ibv_context) -> *mut ibv_comp_channel;
    needed ibv_destroy_comp_channel @ "IBVERBS_1.0" (*mut ibv_comp_channel) -> c_int;
    needed ibv_create_cq @ "IBVERBS_1.1"
        (*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    needed ibv_destroy_cq @ "IBVERBS_1.1" (*mut ibv_cq) -> c_int;
    needed ibv_get_cq_event @ "IBVERBS_1.1"
        (*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    needed ibv_ack_cq_events @ "IBVERBS_1.1" (*mut ibv_cq, c_uint);
    needed ibv_create_qp @ "IBVERBS_1.1" (*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    needed ibv_modify_qp @ "IBVERBS_1.1" (*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    needed ibv_query_qp @ "IBVERBS_1.1"
        (*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    needed ibv_destroy_qp @ "IBVERBS_1.1" (*mut ibv_qp) -> c_int;
    needed ibv_create_ah @ "IBVERBS_1.1" (*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    needed ibv_destroy_ah @ "IBVERBS_1.1" (*mut ibv_ah) -> c_int;
    needed ibv_fork_init @ "IBVERBS_1.1" () -> c_int;
    optional ibv_reg_mr_iova2 @ "IBVERBS_1.8"
        (*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
    optional _ibv_query_gid_table @ "IBVERBS_1.11"
        (*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    optional ibv_query_qp_data_in_order @ "IBVERBS_1.14" (*mut ibv_qp, c_uint, u32) -> c_int;
}

#[derive(Debug, Clone, Copy)]
struct Symbol(&'static str, &'static str);

/// A loaded library. It stays loaded as long as the process lives: it keeps drivers, threads and
/// signal handlers of its own, and does not support unloading.
struct Handle(NonNull<c_void>);

impl Handle {
    fn open(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| "the name has a zero byte".to_owned())?;
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
        // SAFETY: the name ends with a zero. The library's initialisers run; they are those of the
        // system's libibverbs, or of the library that the caller named instead.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        NonNull::new(handle).map(Handle).ok_or_else(last_error)
    }

    fn symbol(&self, Symbol(name, version): Symbol) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        let version = CString::new(version).ok()?;
        // SAFETY: the handle is that of a library that is never closed; the texts end with a zero.
        #[cfg(target_env = "gnu")]
        let found = unsafe { libc::dlvsym(self.0.as_ptr(), name.as_ptr(), version.as_ptr()) };
        #[cfg(not(target_env = "gnu"))]
        let found = {
            // musl has no versions: it returns the default one, which is the newest.
            let _ = version;
            // SAFETY: as above.
            unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) }
        };
        NonNull::new(found)
    }

    fn path(&self, function: unsafe extern "C" fn() -> c_int) -> Option<String> {
        let mut info = libc::Dl_info {
            dli_fname: ptr::null(),
            dli_fbase: ptr::null_mut(),
            dli_sname: ptr::null(),
            dli_saddr: ptr::null_mut(),
        };
        // SAFETY: the call fills the structure or returns 0.
        let found = unsafe { libc::dladdr(function as *const c_void, &raw mut info) };
        if found == 0 || info.dli_fname.is_null() {
            return None;
        }
        // SAFETY: the name belongs to the loaded library, which is never closed.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        Some(OsStr::from_bytes(name.to_bytes()).to_string_lossy().into_owned())
    }
}

fn last_error() -> String {
    // SAFETY: the call returns a text of this thread that is valid until its next call, or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker reports no reason".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(crate) struct Library {
    pub(super) functions: Functions,
    pub(crate) path: String,
}

impl Library {
    /// Loads the library, once more if it is loaded already.
    ///
    /// # Errors
    /// When it cannot be loaded, or lacks a function.
    pub(crate) fn load(path: &Path) -> Result<Arc<Self>, Unavailable> {
        let handle = Handle::open(path).map_err(Unavailable::NoLibrary)?;
        let functions = Functions::find(&handle);
        let functions = functions.map_err(|Symbol(name, version)| Unavailable::OldLibrary {
            library: path.display().to_string(),
            symbol: format!("{name}@{version}"),
        })?;
        // On kernels before 5.12 a child process would otherwise take pages away from a
        // device; on later ones the call does nothing. Must come before any other.
        // SAFETY: the function takes nothing.
        let refused = unsafe { (functions.ibv_fork_init)() };
        if refused != 0 {
            tracing::debug!(refused, "ibv_fork_init");
        }
        let path =
            handle.path(functions.ibv_fork_init).unwrap_or_else(|| path.display().to_string());
        Ok(Arc::new(Self { functions, path }))
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Library").field(&self.path).finish()
    }
}
