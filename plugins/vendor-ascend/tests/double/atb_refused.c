/* The transformer-boost library, as far as its ops are to be registered: nothing can be made.
 * Its functions are C++; they stand here under the names that a compiler gives them.
 */
enum { UNSUPPORTED = 19 };
#define REFUSED(name) \
  int name(void) { return UNSUPPORTED; }
#define OPERATION(parameter) \
  REFUSED(_ZN3atb15CreateOperationINS_5infer##parameter##EEEiRKT_PPNS_9OperationE)

OPERATION(11LinearParam)
OPERATION(12ElewiseParam)
OPERATION(12RmsNormParam)
OPERATION(14GroupTopkParam)
OPERATION(18SelfAttentionParam)
OPERATION(19PagedAttentionParam)
OPERATION(20ReshapeAndCacheParam)
OPERATION(9RopeParam)
REFUSED(_ZN3atb16DestroyOperationEPNS_9OperationE)
REFUSED(_ZN3atb13CreateContextEPPNS_7ContextE)
REFUSED(_ZN3atb14DestroyContextEPNS_7ContextE)
REFUSED(_ZN3atb5Utils13GetTensorSizeERKNS_6TensorE)
