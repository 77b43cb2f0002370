/* What the double does not have. Each fails with the runtime's code for a feature that is missing,
 * so that torch_npu raises; nothing computes here. Ops are computed by tests/double/emulation.py,
 * above the dispatcher, and an op that slips past it ends here.
 */
enum { UNSUPPORTED = 207000 };
#define REFUSED(name) \
  int name(void) { return UNSUPPORTED; }
#define IGNORED(name) \
  int name(void) { return 0; }

REFUSED(aclopCompileAndExecute)
REFUSED(aclCreateDataBuffer)
REFUSED(aclDestroyDataBuffer)
REFUSED(aclrtBinaryGetFunction)
REFUSED(aclrtBinaryLoadFromData)
REFUSED(aclrtDeviceGetBareTgid)
REFUSED(aclrtGetFunctionAddr)
REFUSED(aclrtMallocPhysical)
REFUSED(aclrtFreePhysical)
REFUSED(aclrtMapMem)
REFUSED(aclrtUnmapMem)
REFUSED(aclrtReserveMemAddress)
REFUSED(aclrtReleaseMemAddress)
REFUSED(aclrtMemExportToShareableHandle)
REFUSED(aclrtMemImportFromShareableHandle)
REFUSED(aclrtMemSetPidToShareableHandle)
REFUSED(aclrtProcessReport)
REFUSED(rtDevBinaryRegister)
REFUSED(rtFunctionRegister)
REFUSED(rtGetC2cCtrlAddr)
REFUSED(rtKernelLaunch)

/* Descriptions of tensors for an op: made of nothing, and refused when the op is executed. */
IGNORED(aclCreateTensorDesc)
IGNORED(aclDestroyTensorDesc)
IGNORED(aclGetTensorDescDimV2)
IGNORED(aclGetTensorDescFormat)
IGNORED(aclGetTensorDescNumDims)
IGNORED(aclGetTensorDescType)
IGNORED(aclSetTensorDescName)
IGNORED(aclSetTensorFormat)
IGNORED(aclSetTensorPlaceMent)
IGNORED(aclSetTensorShape)
IGNORED(aclopCreateAttr)
IGNORED(aclopDestroyAttr)
IGNORED(aclopSetAttrBool)
IGNORED(aclopSetAttrDataType)
IGNORED(aclopSetAttrFloat)
IGNORED(aclopSetAttrInt)
IGNORED(aclopSetAttrListBool)
IGNORED(aclopSetAttrListFloat)
IGNORED(aclopSetAttrListInt)
IGNORED(aclopSetAttrListListInt)
IGNORED(aclopSetAttrString)

/* Logs and profiles go nowhere. */
IGNORED(aclAppLog)
IGNORED(aclmdlInitDump)
IGNORED(aclmdlSetDump)
IGNORED(aclmdlFinalizeDump)
IGNORED(MsprofGetHashId)
IGNORED(MsprofRegisterCallback)
IGNORED(MsprofReportAdditionalInfo)
IGNORED(MsprofReportApi)
IGNORED(MsprofReportCompactInfo)
IGNORED(MsprofSysCycleTime)
